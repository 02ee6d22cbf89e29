/*
 * GPipe: fill the pipe with all forwards, then drain it backwards.
 * Source: Huang et al., "GPipe", NeurIPS 2019, section 2.2. Backwards go in reverse order, so the
 * last micro-batch's stash, the freshest, is freed first.
 */
#include "lowering.h"

ty_status ty_schedule_gpipe(ty_lowering *lowering)
{
    ty_status status = TY_OK;

    for (uint32_t k = 0; k < lowering->micro_batches; k++)
        TY_CHECK(ty_lower_forward(lowering, k), status, done);
    for (uint32_t k = lowering->micro_batches; k > 0; k--)
        TY_CHECK(ty_lower_backward(lowering, k - 1, k == 1), status, done);
done:
    return status;
}
