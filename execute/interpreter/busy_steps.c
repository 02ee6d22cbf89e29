/* Finds the steps that other processes on this host disturbed. Every rank counts its involuntary
 * context switches and its CPU time; the sums come with the control of each step. Rank 0 compares
 * them with the CPU time of its host, an interval at a time, since the system counts in units of
 * 10 ms. A step is disturbed if a rank was switched out in an interval in which other processes
 * took TY_BUSY_SHARE of the cores. Switches alone are no sign: ranks that share a core switch each
 * other out. With ranks on several hosts nothing is reported. */
#include "busy.h"
#include "interpreter_watches.h"

#include <stdlib.h>
#include <sys/resource.h>

#define INTERVAL_S 0.25

struct busy_watch {
    double own_cpu_s, own_switches; /* of this process, by the last step */
    /* Rank 0 only, about all ranks: */
    bool is_watching;
    ty_cpu_clock first, from;      /* of the run, of the current interval */
    double all_cpu_s, whole_cpu_s; /* of the interval, of those before it */
    double switches;
    uint32_t first_step, end_step, step_count;
    bool *is_disturbed; /* [options.steps] */
};

static void read_own(double *cpu_s, double *switches)
{
    struct rusage used;

    *cpu_s = *switches = 0;
    if (getrusage(RUSAGE_SELF, &used) != 0)
        return;
    *switches = (double)used.ru_nivcsw;
    *cpu_s = (double)used.ru_utime.tv_sec + 1e-6 * (double)used.ru_utime.tv_usec +
             (double)used.ru_stime.tv_sec + 1e-6 * (double)used.ru_stime.tv_usec;
}

ty_status interpreter_busy_open(ty_interpreter *in, ty_error *error)
{
    struct busy_watch *b = in->busy = ty_alloc(1, sizeof *b);

    TY_TRY(ty_check_memory(b != NULL, error));
    b->is_disturbed = ty_alloc(in->options.steps, sizeof *b->is_disturbed);
    TY_TRY(ty_check_memory(b->is_disturbed != NULL, error));
    read_own(&b->own_cpu_s, &b->own_switches);
    b->is_watching = in->options.transport->rank == 0 && ty_cpu_clock_read(&b->from);
    b->first = b->from;
    return TY_OK;
}

void interpreter_busy_close(ty_interpreter *in)
{
    if (in->busy != NULL)
        ty_free(in->busy->is_disturbed);
    ty_free(in->busy);
}

/* Adds this rank's counts to the control of the current step. */
void interpreter_busy_count(ty_interpreter *in, step_control *control)
{
    struct busy_watch *b = in->busy;
    double cpu_s, switches;

    read_own(&cpu_s, &switches);
    control->cpu_s = cpu_s - b->own_cpu_s;
    control->switch_count = switches - b->own_switches;
    b->own_cpu_s = cpu_s;
    b->own_switches = switches;
}

/* Closes the interval and judges its steps. */
static void judge(ty_interpreter *in, const ty_cpu_clock *to)
{
    struct busy_watch *b = in->busy;
    const bool is_busy = ty_others_share(&b->from, to, b->all_cpu_s) >= TY_BUSY_SHARE;

    for (uint32_t s = b->first_step; s < b->end_step; s++)
        b->is_disturbed[s] = b->is_disturbed[s] && is_busy;
    b->whole_cpu_s += b->all_cpu_s;
    b->all_cpu_s = 0;
    b->first_step = b->end_step;
    b->from = *to;
}

void interpreter_busy_add(ty_interpreter *in, const step_control *control)
{
    struct busy_watch *b = in->busy;
    ty_cpu_clock now;

    if (!b->is_watching || in->controls_done >= in->options.steps)
        return;
    if (b->step_count++ == 0)
        b->first_step = in->controls_done;
    b->end_step = in->controls_done + 1;
    b->is_disturbed[in->controls_done] = control->switch_count > 0;
    b->switches += control->switch_count;
    b->all_cpu_s += control->cpu_s;
    if (ty_now_s() - b->from.now_s >= INTERVAL_S && ty_cpu_clock_read(&now))
        judge(in, &now);
}

ty_status ty_interpreter_disturbance(ty_interpreter *in, uint32_t first, uint32_t count,
                                     ty_disturbance *out, ty_error *error)
{
    struct busy_watch *b = in->busy;
    ty_disturbance found = {0};
    ty_cpu_clock now;

    if (!b->is_watching || b->step_count == 0 || !ty_cpu_clock_read(&now)) {
        *out = found;
        return TY_OK;
    }
    judge(in, &now);
    found.steps = b->step_count;
    found.switches = b->switches;
    found.others_share = ty_others_share(&b->first, &now, b->whole_cpu_s);
    found.steal_share = ty_others_share(
        &(ty_cpu_clock){.now_s = b->first.now_s},
        &(ty_cpu_clock){.now_s = now.now_s, .busy_s = now.steal_s - b->first.steal_s}, 0);
    if (getloadavg(&found.load, 1) != 1)
        found.load = 0;
    found.timeline_steps = ty_alloc(count, sizeof *found.timeline_steps);
    TY_TRY(ty_check_memory(found.timeline_steps != NULL, error));
    for (uint32_t s = 0; s < in->options.steps; s++)
        found.disturbed_steps += b->is_disturbed[s];
    first += in->options.first_recorded;
    for (uint32_t s = 0; s < count && first + s < in->options.steps; s++)
        if (b->is_disturbed[first + s])
            found.timeline_steps[found.timeline_step_count++] = s;
    *out = found;
    return TY_OK;
}
