/* Actors and learners: who plays, and how weights come to those who do. What learners do with
 * episodes is any schedule's. */
#include "lowering.h"

static ty_instruction message(const ty_lowering *l, ty_op op, uint32_t micro_batch,
                              ty_direction direction)
{
    ty_instruction instruction = ty_instruction_of(op);
    const uint32_t stage = l->position;

    instruction.stage = stage;
    instruction.micro_batch = micro_batch;
    instruction.peer_stage = 1 - stage;
    instruction.direction = direction;
    instruction.bytes = ty_plan_transfer_bytes(l->plan, 1, direction);
    return instruction;
}

ty_status ty_lower_act(ty_lowering *l, ty_lower_pass pass, uint32_t *index)
{
    const ty_instruction act = ty_lower_compute(TY_OP_ACT, pass, 0, 0);

    return ty_lower_append(l, &act, NULL, 0, index);
}

/* In a round first come the weights of step t, then episodes of step t + 1 + lag are played with
 * them. */
ty_status ty_lower_actors(ty_lowering *l)
{
    const uint32_t messages = ty_plan_policy_messages(l->plan, 0);
    ty_instruction renew = ty_instruction_of(TY_OP_RENEW);
    uint32_t *received = ty_alloc(messages, sizeof *received);
    ty_status status = TY_OK;

    if (received == NULL)
        return ty_fail(l->error, TY_ENOMEM, "out of memory");
    for (uint32_t m = 0; m < messages; m++) {
        const ty_instruction receive = message(l, TY_OP_RECEIVE, m, TY_POLICY);
        TY_CHECK(ty_lower_append(l, &receive, NULL, 0, &received[m]), status, cleanup);
    }
    renew.stage = l->position;
    TY_CHECK(ty_lower_append(l, &renew, received, messages, NULL), status, cleanup);
    for (uint32_t m = 0; m < l->micro_batches; m++) {
        const ty_lower_pass pass = {l->position, m, l->plan->lag + 1};
        ty_instruction send = message(l, TY_OP_SEND, m, TY_ACTIVATION);
        uint32_t act = 0;
        send.lead = pass.lead;
        TY_CHECK(ty_lower_act(l, pass, &act), status, cleanup);
        TY_CHECK(ty_lower_append(l, &send, &act, 1, NULL), status, cleanup);
    }
cleanup:
    ty_free(received);
    return status;
}

ty_status ty_lower_policy(ty_lowering *l)
{
    ty_instruction renew = ty_instruction_of(TY_OP_RENEW);
    uint32_t renewed = 0;
    ty_status status = TY_OK;

    if (ty_plan_actors(l->plan) == 0)
        return TY_OK;
    renew.stage = l->position;
    TY_CHECK(ty_lower_append(l, &renew, NULL, 0, &renewed), status, done);
    for (uint32_t m = 0; m < ty_plan_policy_messages(l->plan, l->position); m++) {
        const ty_instruction send = message(l, TY_OP_SEND, m, TY_POLICY);
        TY_CHECK(ty_lower_append(l, &send, &renewed, 1, NULL), status, done);
    }
done:
    return status;
}
