/* The steady state of a step: finds its period in a short program, and extends its time to all
 * micro-batches. */
#include "steady.h"

#include "lowering.h"

#include <math.h>

/* Steps to estimate: the differences between the last ones are the steady state. */
#define ESTIMATED_STEPS 3
/* Instructions of a program up to which longer ones are tried while none is periodic. */
#define MOST_TRIED (1u << 18)
/* Periods are equal to this share, and to the rounding of times. */
#define SAME_PERIOD 1e-10
#define ROUNDING 1e-14

/* A plan with fewer micro-batches, walked. */
typedef struct short_step {
    ty_plan plan;
    ty_program *program; /* borrowed for the first */
    ty_costs *costs;
    ty_walked walked;
    uint64_t instructions;
    bool is_borrowed;
} short_step;

/* ---- Events of a micro-batch ----------------------------------------------------------------- */

/* Instructions of a pipeline rank by stage and micro-batch, each in the order of the list. */
typedef struct by_micro_batch {
    uint32_t local;   /* micro-batches of a replica */
    uint32_t *starts; /* [virtual stages][local] and an end: into the next */
    uint32_t *indices;
} by_micro_batch;

static void by_micro_batch_clear(by_micro_batch *b)
{
    ty_free(b->starts);
    ty_free(b->indices);
}

static ty_status by_micro_batch_make(const short_step *s, uint32_t rank, by_micro_batch *out,
                                     ty_error *error)
{
    const ty_stage_program *list = &s->program->stages[rank];
    const uint32_t local = s->plan.micro_batches / s->plan.stages[rank].replicas;
    const size_t keys = (size_t)local * ty_plan_virtual_stages(&s->plan);
    by_micro_batch made = {.local = local,
                           .starts = ty_alloc(keys + 2, sizeof *made.starts),
                           .indices = ty_alloc(list->instruction_count, sizeof *made.indices)};

    *out = made;
    TY_TRY(ty_check_memory(made.starts != NULL && made.indices != NULL, error));
    for (int is_placed = 0; is_placed < 2; is_placed++) {
        for (uint32_t i = 0; i < list->instruction_count; i++) {
            const ty_instruction *in = &list->instructions[i];
            if (in->micro_batch == TY_NO_MICRO_BATCH)
                continue;
            /* Two further: counts, whose sums become starts, which placing turns into ends. */
            uint32_t *at = &made.starts[(size_t)(in->stage / s->program->stage_count) * local +
                                        in->micro_batch + 2 - (size_t)is_placed];
            if (is_placed)
                made.indices[*at] = i;
            ++*at;
        }
        for (size_t k = 2; k < keys + 2 && !is_placed; k++)
            made.starts[k] += made.starts[k - 1];
    }
    return TY_OK;
}

/* ---- The period ------------------------------------------------------------------------------ */

/* Seconds by which the events of a pipeline rank come later after a period; < 0: it has none. */
typedef struct rank_rates {
    double passes[2], sends[2]; /* forward, backward */
    double others;              /* the largest */
} rank_rates;

static bool is_equal(double a, double b, double end_s)
{
    return fabs(a - b) <= SAME_PERIOD * fmax(a, b) + ROUNDING * end_s;
}

static bool is_backward(const ty_instruction *in)
{
    return in->direction == TY_GRADIENT || in->op == TY_OP_RECOMPUTE || in->op == TY_OP_BACKWARD ||
           in->op == TY_OP_BACKWARD_INPUT || in->op == TY_OP_BACKWARD_WEIGHT;
}

/* @param later the same instruction of a micro-batch one period later
 * @return whether both are as far apart as the others of their kind */
static bool add_pair(rank_rates *rates, const ty_instruction *in, const ty_event *event,
                     const ty_event *later)
{
    const double apart_s = fabs(later->end_s - event->end_s);
    double *rate = in->stream == TY_STREAM_COMPUTE ? &rates->passes[is_backward(in)]
                                                   : &rates->sends[is_backward(in)];

    if (in->stream != TY_STREAM_COMPUTE && in->stream != TY_STREAM_SEND) {
        rates->others = fmax(rates->others, apart_s);
        return true;
    }
    if (*rate < 0)
        *rate = apart_s;
    return is_equal(*rate, apart_s, fmax(event->end_s, later->end_s));
}

/* Compares the second window of a replica with what follows it by `period` micro-batches. */
static bool compare_replica(const short_step *s, uint32_t rank, const by_micro_batch *b,
                            const ty_event *events, uint32_t period, rank_rates *rates)
{
    const ty_stage_program *list = &s->program->stages[rank];
    const uint32_t window = b->local / TY_SHORT_WINDOWS;

    for (uint32_t k = 0; k < ty_plan_virtual_stages(&s->plan); k++)
        for (uint32_t m = window; m < 2 * window; m++) {
            const uint32_t *starts = &b->starts[(size_t)k * b->local + m];
            const uint32_t count = starts[1] - starts[0];
            if (starts[period + 1] - starts[period] != count)
                return false;
            for (uint32_t i = 0; i < count; i++) {
                const uint32_t one = b->indices[starts[0] + i],
                               other = b->indices[starts[period] + i];
                if (list->instructions[one].op != list->instructions[other].op ||
                    !add_pair(rates, &list->instructions[one], &events[one], &events[other]))
                    return false;
            }
        }
    return true;
}

/* Whether no event waits for one that is later with every period: then each waits for the same one
 * in all periods. `rates` are of all pipeline ranks. */
static bool can_continue(const short_step *s, const rank_rates *rates, double end_s)
{
    const bool has_phases = ty_schedule_at(s->plan.schedule)->has_full_in_flight;

    for (uint32_t r = 0; r < s->program->stage_count; r++)
        for (int way = 0; way < 2; way++) {
            const double own = rates[r].passes[way], sends = rates[r].sends[way];
            const bool is_next = way == 0 ? r + 1 < s->program->stage_count : r > 0;
            const double next = !is_next ? own : rates[way == 0 ? r + 1 : r - 1].passes[way];
            const double all = rates[0].passes[0];
            if ((own < 0) != (rates[0].passes[way] < 0) ||
                rates[r].others > fmax(rates[r].passes[0], rates[r].passes[1]) * (1 + SAME_PERIOD) +
                                      ROUNDING * end_s)
                return false;
            if (own < 0)
                continue;
            if (!has_phases &&
                (!is_equal(own, all, end_s) || (sends >= 0 && !is_equal(sends, all, end_s))))
                return false;
            if ((sends >= 0 && own > sends && !is_equal(own, sends, end_s)) ||
                (fmax(own, sends) > next && is_next && !is_equal(fmax(own, sends), next, end_s)))
                return false;
        }
    return true;
}

static ty_status is_periodic(const short_step *s, const by_micro_batch *lists, uint32_t period,
                             bool *out, ty_error *error)
{
    const uint32_t ranks = s->program->stage_count;
    const ty_event *event = s->walked.timeline->events;
    rank_rates *rates = ty_alloc(ranks, sizeof *rates);
    double end_s = 0;

    TY_TRY(ty_check_memory(rates != NULL, error));
    *out = true;
    for (uint32_t step = 0; *out && step < s->walked.timeline->step_count; step++) {
        for (uint32_t r = 0; r < ranks; r++)
            rates[r] = (rank_rates){{-1, -1}, {-1, -1}, 0};
        for (uint32_t r = 0; r < ranks; r++)
            for (uint32_t q = 0; *out && q < s->walked.plan.stages[r].replicas; q++) {
                *out = compare_replica(s, r, &lists[r], event, period / s->plan.stages[r].replicas,
                                       &rates[r]);
                event += s->program->stages[r].instruction_count;
                end_s = fmax(end_s, event[-1].end_s);
            }
        *out = *out && can_continue(s, rates, end_s);
    }
    ty_free(rates);
    return TY_OK;
}

/* The shortest period of a program, in micro-batches of all replicas; 0: it has none.
 * @param only if > 0, no other period */
static ty_status find_period(const short_step *s, uint32_t only, uint32_t *out, ty_error *error)
{
    const uint32_t ranks = s->program->stage_count, unit = (uint32_t)ty_plan_repetition(&s->plan);
    by_micro_batch *lists = ty_alloc(ranks, sizeof *lists);
    ty_status status = TY_OK;

    *out = 0;
    TY_TRY(ty_check_memory(lists != NULL, error));
    for (uint32_t r = 0; r < ranks; r++)
        TY_CHECK(by_micro_batch_make(s, r, &lists[r], error), status, done);
    for (uint32_t period = only > 0 ? only : unit;
         *out == 0 && period < s->plan.micro_batches / TY_SHORT_WINDOWS; period += unit) {
        bool is_found;
        TY_CHECK(is_periodic(s, lists, period, &is_found, error), status, done);
        *out = is_found ? period : 0;
        if (only > 0)
            break;
    }
done:
    for (uint32_t r = 0; r < ranks; r++)
        by_micro_batch_clear(&lists[r]);
    ty_free(lists);
    return status;
}

/* ---- The step -------------------------------------------------------------------------------- */

static void short_step_clear(short_step *s)
{
    ty_walked_clear(&s->walked);
    ty_costs_free(s->costs);
    if (!s->is_borrowed)
        ty_program_free(s->program);
    *s = (short_step){0};
}

/* @param program of as many micro-batches; NULL: it is lowered
 * @param out may be another, which is cleared; clear it also after a failure */
static ty_status walk_short(const ty_plan *plan, uint32_t micro_batches, const ty_program *program,
                            ty_steady_costs *costs, void *context, short_step *out, ty_error *error)
{
    short_step_clear(out);
    out->plan = *plan;
    out->plan.micro_batches = micro_batches;
    out->is_borrowed = program != NULL;
    out->program = (ty_program *)program;
    if (program == NULL)
        TY_TRY(ty_plan_lower_short(plan, micro_batches, &out->program, error));
    for (uint32_t r = 0; r < out->program->stage_count; r++)
        out->instructions += out->program->stages[r].instruction_count;
    TY_TRY(costs(context, &out->plan, out->program, &out->costs, error));
    return ty_estimate_walk(&out->plan, out->program, out->costs,
                            ESTIMATED_STEPS + 2 * ty_program_largest_lead(out->program),
                            &out->walked, error);
}

/* Walks longer programs until one is periodic. @param period [out] 0: none is */
static ty_status walk_to_period(const ty_plan *plan, const ty_program *program,
                                ty_steady_costs *costs, void *context, short_step *s,
                                uint32_t *period, ty_error *error)
{
    uint64_t count = plan->micro_batches - program->left_out;

    TY_TRY(walk_short(plan, (uint32_t)count, program, costs, context, s, error));
    for (;;) {
        TY_TRY(find_period(s, 0, period, error));
        const uint32_t rest =
            *period == 0 ? 0 : (plan->micro_batches - s->plan.micro_batches) % *period;
        if (rest > 0) { /* a whole number of periods is to follow */
            TY_TRY(walk_short(plan, (uint32_t)count + rest, NULL, costs, context, s, error));
            TY_TRY(find_period(s, *period, period, error));
        }
        count *= 2;
        if (*period > 0 || s->instructions > MOST_TRIED / 2 || 2 * count > plan->micro_batches)
            return TY_OK;
        TY_TRY(walk_short(plan, (uint32_t)count, NULL, costs, context, s, error));
    }
}

ty_status ty_estimate_steady(const ty_plan *plan, const ty_program *program, ty_steady_costs *costs,
                             void *context, ty_step_summary *out, ty_error *error)
{
    const uint32_t unit = (uint32_t)ty_plan_repetition(plan);
    short_step s = {0};
    uint32_t period = 0, first;
    ty_step_summary shorter;
    ty_status status = TY_OK;

    TY_CHECK(program->left_out > 0
                 ? walk_to_period(plan, program, costs, context, &s, &period, error)
                 : walk_short(plan, plan->micro_batches, program, costs, context, &s, error),
             status, done);
    first = s.plan.micro_batches;
    if (period == 0 && first < plan->micro_batches) {
        if ((double)s.instructions / first * plan->micro_batches <= TY_MAX_INSTRUCTIONS)
            TY_CHECK(walk_short(plan, plan->micro_batches, NULL, costs, context, &s, error), status,
                     done);
        else
            period = first / TY_SHORT_WINDOWS / unit * unit;
    }
    shorter = s.walked.summary;
    if (period > 0) {
        TY_CHECK(walk_short(plan, first + period, NULL, costs, context, &s, error), status, done);
        ty_step_summary_extend(&s.walked.plan, &s.walked.summary,
                               (double)(plan->micro_batches - first) / period, &shorter);
    }
    *out = shorter;
    ty_step_summary_rate(plan, out); /* of all its devices, not of one replica's */
done:
    short_step_clear(&s);
    return status;
}
