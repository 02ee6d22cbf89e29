/* The order of messages between pairs of ranks, which both ends must agree about. */
#include "interpreter_state.h"

static bool is_same_pair(const ty_interpreter *in, uint32_t a, uint32_t b)
{
    const ty_instruction *x = &in->program->instructions[a], *y = &in->program->instructions[b];
    const ty_plan *plan = in->options.plan;

    return x->op == y->op && x->direction == y->direction &&
           ty_program_peer_rank(plan, in->rank, x) == ty_program_peer_rank(plan, in->rank, y);
}

/* The first instruction of the program that moves messages of the same direction with the same
 * rank. */
ty_status interpreter_pairs_make(ty_interpreter *in, ty_error *error)
{
    uint32_t i, k, count = in->program->instruction_count;

    in->pairs = ty_alloc(count, sizeof *in->pairs);
    if (in->pairs == NULL)
        return interpreter_no_memory(error);
    for (i = 0; i < count; i++) {
        ty_op op = in->program->instructions[i].op;

        in->pairs[i] = NO_INDEX;
        if (op != TY_OP_SEND && op != TY_OP_RECEIVE)
            continue;
        for (k = 0; in->program->instructions[k].op != op || !is_same_pair(in, i, k);)
            k++;
        in->pairs[i] = k;
    }
    return TY_OK;
}

/* How often the k-th instruction comes in this stretch before the i-th does in a round. */
static uint64_t times_before(const ty_interpreter *in, uint32_t k, uint32_t i, int64_t round)
{
    const int64_t first = in->first_step, target = in->target;
    const int64_t end = round + in->program->instructions[k].lead + (k < i);

    return (uint64_t)((end < first ? first : end > target ? target : end) - first);
}

uint64_t interpreter_order(const ty_interpreter *in, uint32_t index, uint32_t step)
{
    const int64_t round = (int64_t)step - in->program->instructions[index].lead;
    uint64_t order = 0;

    for (uint32_t k = 0; k < in->program->instruction_count; k++)
        if (in->pairs[k] == in->pairs[index])
            order += in->first_step - in->origin_step + times_before(in, k, index, round);
    return order;
}
