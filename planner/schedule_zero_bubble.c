/*
 * Zero bubble, the variant H1 with the memory of 1F1B: the gradients of weights, for which nobody
 * waits, are put off, so that those of activations leave earlier and the end of the step is filled.
 * Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 3: the n-th position
 * puts off n of them.
 */
#include "lowering.h"

ty_status ty_schedule_zero_bubble(ty_lowering *l)
{
    const uint32_t count = l->micro_batches;
    const uint32_t warmup = ty_lower_warmup(l) < count ? ty_lower_warmup(l) : count;
    ty_lower_pass pass = {.stage = l->position};
    uint32_t weights = 0; /* micro-batches whose weights' part is written */
    ty_status status = TY_OK;

    for (; pass.micro_batch < warmup; pass.micro_batch++)
        TY_CHECK(ty_lower_forward(l, pass), status, done);
    for (uint32_t k = 0; k < count; k++) {
        pass.micro_batch = warmup + k;
        if (pass.micro_batch < count)
            TY_CHECK(ty_lower_forward(l, pass), status, done);
        pass.micro_batch = k;
        TY_CHECK(ty_lower_backward_input(l, pass), status, done);
        if (k < l->position)
            continue;
        pass.micro_batch = weights++;
        TY_CHECK(ty_lower_backward_weight(l, pass, weights == count), status, done);
    }
    while (weights < count) {
        pass.micro_batch = weights++;
        TY_CHECK(ty_lower_backward_weight(l, pass, weights == count), status, done);
    }
done:
    return status;
}
