/*
 * GPipe: all forwards, then all backwards. Source: Huang et al., "GPipe", NeurIPS 2019, section
 * 2.2. Backwards are in reverse order, so the activations of the last micro-batch, the newest, are
 * freed first.
 */
#include "lowering.h"

ty_status ty_schedule_gpipe(ty_lowering *l)
{
    ty_lower_pass pass = {.stage = l->pipeline_rank};

    for (; pass.micro_batch < l->micro_batches; pass.micro_batch++)
        TY_TRY(ty_lower_forward(l, pass));
    while (pass.micro_batch-- > 0)
        TY_TRY(ty_lower_backward(l, pass, pass.micro_batch == 0));
    return TY_OK;
}
