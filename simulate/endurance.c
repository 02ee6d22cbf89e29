/* A long run under failures: see ty_simulate.h. */
#include "disturbance.h"
#include "ty_simulate.h"

#include "ty_base.h"

#include <math.h>
#include <string.h>

enum { MOST_EVENTS = 10000000, MOST_OUT = 4096 };

static ty_status check(const ty_endurance_question *q, ty_error *error)
{
    const struct {
        const char *name;
        double value;
        bool is_good;
    } figures[] = {
        {"horizon_s", q->horizon_s, q->horizon_s > 0 && isfinite(q->horizon_s)},
        {"failure_rate_per_s", q->failure_rate_per_s,
         q->failure_rate_per_s >= 0 && isfinite(q->failure_rate_per_s)},
        {"checkpoint_interval_s", q->checkpoint_interval_s, q->checkpoint_interval_s > 0},
        {"checkpoint_write_s", q->checkpoint_write_s,
         q->checkpoint_write_s >= 0 && isfinite(q->checkpoint_write_s)},
        {"restart_s", q->restart_s, q->restart_s >= 0 && isfinite(q->restart_s)},
        {"repair_s", q->repair_s, q->repair_s >= 0 && isfinite(q->repair_s)},
    };

    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        if (!figures[i].is_good)
            return ty_fail(error, TY_EINVAL, "endurance: %s is %g; expected a finite number %s 0",
                           figures[i].name, figures[i].value, i % 2 == 0 && i < 3 ? ">" : ">=");
    for (uint32_t k = 0; k < q->rate_count; k++)
        if (!(q->rates[k] >= 0 && q->rates[k] <= 1))
            return ty_fail(error, TY_EINVAL, "endurance: rates[%u] is %g; expected 0 to 1", k,
                           q->rates[k]);
    for (uint32_t k = 0; k < q->known_count; k++)
        if (!(q->known[k].time_s >= (k > 0 ? q->known[k - 1].time_s : 0)) ||
            !(q->known[k].rate >= 0 && q->known[k].rate <= 1))
            return ty_fail(error, TY_EINVAL,
                           "endurance: failure %u at %g s leaves %g; expected ascending times and "
                           "rates from 0 to 1",
                           k, q->known[k].time_s, q->known[k].rate);
    return TY_OK;
}

/* Failed components. */
typedef struct part {
    double return_s, rate;
    uint32_t replicas;
} part;

/* State of the run. */
typedef struct run {
    const ty_endurance_question *q;
    ty_endurance *sums;
    double now_s;
    double unsaved_s;      /* work at full rate since the last checkpoint */
    double unsaved_slow_s; /* additional time against the full rate */
    double next_failure_s; /* random */
    uint32_t known, chances;
    uint32_t out_count;
    part out[MOST_OUT]; /* ascending by the time of return */
    uint64_t events;
} run;

static void draw_failure(run *r)
{
    r->next_failure_s =
        r->q->failure_rate_per_s > 0
            ? r->now_s - log(ty_uniform(r->q->seed, r->chances++)) / r->q->failure_rate_per_s
            : HUGE_VAL;
}

static double known_s(const run *r)
{
    return r->known < r->q->known_count ? r->q->known[r->known].time_s : HUGE_VAL;
}

static double failure_s(const run *r)
{
    return fmin(r->next_failure_s, known_s(r));
}

/* Rate of work with the remaining replicas. */
static double rate_now(const run *r)
{
    double rate = 1.0;
    uint32_t replicas = 0;

    for (uint32_t i = 0; i < r->out_count; i++) {
        replicas += r->out[i].replicas;
        rate = fmin(rate, r->out[i].rate);
    }
    if (replicas > 0 && r->q->rate_count > 0)
        rate *= replicas < r->q->rate_count ? r->q->rates[replicas] : 0.0;
    return rate;
}

static void put_out(run *r, double rate, uint32_t replicas)
{
    const part added = {r->now_s + r->q->repair_s, rate, replicas};
    uint32_t at = r->out_count;

    if (r->out_count == MOST_OUT)
        return;
    for (; at > 0 && r->out[at - 1].return_s > added.return_s; at--)
        r->out[at] = r->out[at - 1];
    r->out[at] = added;
    r->out_count++;
    r->sums->most_out = r->out_count > r->sums->most_out ? r->out_count : r->sums->most_out;
}

/* A failure at `now`: work that no checkpoint has is lost. */
static void fail(run *r)
{
    r->events++;
    r->sums->failures++;
    r->sums->lost_s += r->unsaved_s + r->unsaved_slow_s;
    r->unsaved_s = r->unsaved_slow_s = 0.0;
    if (known_s(r) <= r->next_failure_s) {
        const ty_known_fault *fault = &r->q->known[r->known++];
        if (fault->rate < 1.0 || fault->replicas > 0)
            put_out(r, fault->rate, fault->replicas);
        return;
    }
    if (r->q->rate_count > 0)
        put_out(r, 1.0, 1);
    draw_failure(r);
}

/* Down until `until`, and longer if something fails meanwhile. */
static void stay_down(run *r, double until_s)
{
    while (r->now_s < r->q->horizon_s) {
        const double end_s = fmin(until_s, r->q->horizon_s), next_s = failure_s(r);
        if (next_s >= end_s) {
            r->sums->down_s += end_s - r->now_s;
            r->now_s = end_s;
            return;
        }
        r->sums->down_s += next_s - r->now_s;
        r->now_s = next_s;
        fail(r);
        until_s = fmax(until_s, r->now_s + r->q->restart_s);
    }
}

static void save(run *r)
{
    r->sums->work_s += r->unsaved_s;
    r->sums->degraded_s += r->unsaved_slow_s;
    r->unsaved_s = r->unsaved_slow_s = 0.0;
}

/* @return whether it was completed */
static bool write_checkpoint(run *r)
{
    const double end_s = r->now_s + r->q->checkpoint_write_s, next_s = failure_s(r);
    const double stop_s = fmin(fmin(end_s, next_s), r->q->horizon_s);

    r->events++;
    r->sums->checkpoint_s += stop_s - r->now_s;
    r->now_s = stop_s;
    if (stop_s < end_s)
        return false;
    r->sums->checkpoints++;
    save(r);
    return true;
}

/* Restarts with all components that have returned. */
static void restart(run *r)
{
    for (; r->out_count > 0 && r->out[0].return_s <= r->now_s; r->out_count--)
        memmove(r->out, r->out + 1, (r->out_count - 1) * sizeof *r->out);
    stay_down(r, r->now_s + r->q->restart_s);
}

/* Advances to the next event. */
static void go_on(run *r)
{
    const double rate = rate_now(r);
    const double return_s = r->out_count > 0 ? r->out[0].return_s : HUGE_VAL;
    const double next_s = fmin(failure_s(r), r->q->horizon_s);

    if (r->now_s >= return_s) {
        /* A component is back: it joins with a checkpoint and a restart. If a failure or the end
         * comes first, it joins with the next restart. */
        if (rate <= 0.0 || !isfinite(r->q->checkpoint_interval_s) || write_checkpoint(r))
            restart(r);
    } else if (rate <= 0.0) {
        stay_down(r, return_s);
    } else {
        const double full_s = r->now_s + (r->q->checkpoint_interval_s - r->unsaved_s) / rate;
        const double stop_s = fmin(fmin(next_s, return_s), fmax(full_s, r->now_s));
        /* Work at that rate. */
        const double span_s = stop_s - r->now_s;
        r->unsaved_s += span_s * rate;
        r->unsaved_slow_s += span_s * (1.0 - rate);
        r->now_s = stop_s;
        if (stop_s >= full_s && stop_s < next_s)
            (void)write_checkpoint(r);
    }
    if (r->now_s >= failure_s(r) && r->now_s < r->q->horizon_s) {
        fail(r);
        restart(r);
    }
}

ty_status ty_endure(const ty_endurance_question *question, ty_endurance *out, ty_error *error)
{
    ty_endurance sums = {0};
    ty_status status = check(question, error);
    run *r = NULL;

    if (status != TY_OK)
        return status;
    TY_TRY(ty_check_memory((r = ty_alloc(1, sizeof *r)) != NULL, error));
    r->q = question;
    r->sums = &sums;
    draw_failure(r);
    while (r->now_s < question->horizon_s && r->events < MOST_EVENTS)
        go_on(r);
    if (r->events >= MOST_EVENTS) {
        status =
            ty_fail(error, TY_ELIMIT, "endurance: more than %d failures and checkpoints in %g s",
                    MOST_EVENTS, question->horizon_s);
    } else {
        save(r);
        sums.goodput = sums.work_s / question->horizon_s;
        *out = sums;
    }
    ty_free(r);
    return status;
}
