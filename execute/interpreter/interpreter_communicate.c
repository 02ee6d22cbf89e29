/* The communication thread: advances sends, receives and collectives together, and after each step
 * all-reduces the loss and the requests to stop. Sleeps when nothing moves. */
#include "interpreter_exchange.h"
#include "interpreter_messages.h"
#include "interpreter_watches.h"

#include <math.h>
#include <time.h>
#ifdef __linux__
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum {
    /* Between polls while this rank computes: every poll interrupts it. */
    BUSY_NS = 10000000,
    BUSY_AWAITED_SHORTEST_NS = 400000,
    BUSY_AWAITED_NS = 2000000,
    ROUNDS_PER_DOUBLING = 4,
    LINKED_NS = 5000,
    UNTIL_RUNG_NS = 1000000000
};

/* ---- After each step --------------------------------------------------------------------- */

static ty_status control_start(ty_interpreter *in, ty_error *error)
{
    const volatile sig_atomic_t *stop = in->options.stop;
    step_control *sums;
    uint32_t place;
    bool is_due;

    pthread_mutex_lock(&in->lock);
    is_due = in->steps_done > in->controls_done;
    place = in->controls_done % in->window;
    sums = &in->sums[place];
    if (is_due) {
        in->control = *sums;
        *sums = (step_control){0};
    }
    pthread_mutex_unlock(&in->lock);
    if (!is_due)
        return TY_OK;
    in->control.stop_count = stop != NULL && *stop != 0;
    interpreter_busy_count(in, &in->control);
    return ty_collective_start(in->options.transport,
                               &(ty_collective_options){.kind = TY_ALL_REDUCE,
                                                        .algorithm = TY_TREE,
                                                        .member_count = in->options.transport->size,
                                                        .data = &in->control,
                                                        .count = CONTROL_COUNT,
                                                        .element = TY_ELEMENT_DOUBLE,
                                                        .tag = (uint32_t)TAG_CONTROL | place},
                               &in->control_running, error);
}

/* Dynamic loss scaling (Micikevicius et al., "Mixed precision training", ICLR 2018), with the
 * constants of torch.amp.GradScaler. A rank may be a window ahead of the last step that ended on
 * all ranks, so the new factor applies from the first step after the window. Needs the lock. */
static void loss_scale_adapt(ty_interpreter *in)
{
    enum { GROWTH_STEPS = 2000 };
    const double largest = 16777216, smallest = 1;
    double *own = &in->loss_scales[in->controls_done % in->window];

    if (in->control.overflow_count > 0) {
        in->clean_steps = 0;
        in->loss_scale = fmax(*own / 2, smallest);
    } else if (++in->clean_steps == GROWTH_STEPS) {
        in->clean_steps = 0;
        in->loss_scale = fmin(in->loss_scale * 2, largest);
    }
    *own = in->loss_scale;
}

/* A rank may be a window ahead of the last step that ended on all ranks; stopping takes effect
 * after the window. */
static void control_done(ty_interpreter *in)
{
    double loss = interpreter_is_timed(in) ? 0 : in->control.loss_sum / in->control.label_count;
    uint32_t last;

    interpreter_noise_add(in, &in->control);
    interpreter_distortion_add(in, &in->control);
    interpreter_busy_add(in, &in->control);
    in->is_diverged = in->is_diverged || !isfinite(loss);
    in->is_stopped = in->is_stopped || in->control.stop_count > 0;
    pthread_mutex_lock(&in->lock);
    in->losses[in->controls_done] = loss;
    loss_scale_adapt(in);
    last = in->controls_done + in->window;
    if ((in->is_diverged || in->is_stopped) && in->target > last)
        in->target = last;
    in->controls_done++;
    interpreter_bind_slots(in);
    interpreter_wake(in);
    pthread_mutex_unlock(&in->lock);
    if (in->options.on_step != NULL)
        in->options.on_step(in->options.context, in->controls_done, loss);
}

static ty_status control_advance(ty_interpreter *in, bool *is_moved, ty_error *error)
{
    bool is_done = false;
    ty_status status = TY_OK;

    if (in->control_running == NULL)
        status = control_start(in, error);
    if (status != TY_OK || in->control_running == NULL)
        return status;
    status = ty_collective_test(in->control_running, &is_done, is_moved, error);
    if (status == TY_OK && is_done) {
        in->control_running = NULL;
        control_done(in);
        *is_moved = true;
    }
    return status;
}

/* ---- The loop ---------------------------------------------------------------------------- */

static struct timespec later(long nanoseconds)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += nanoseconds;
    if (at.tv_nsec >= 1000000000) {
        at.tv_nsec -= 1000000000;
        at.tv_sec++;
    }
    return at;
}

/* Whether partners wait for this rank to poll: rounds of collectives, and messages with a
 * handshake. */
static bool is_awaited(const ty_interpreter *in)
{
    return interpreter_exchange_is_under_way(in) || interpreter_messages_are_awaited(in);
}

/* While the compute thread works, no thread of this rank waits for messages, and every poll takes
 * the core from it. */
static long busy_delay(const ty_interpreter *in, const ty_backoff *backoff)
{
    uint32_t doublings = backoff->rounds / ROUNDS_PER_DOUBLING;

    if (!is_awaited(in))
        return BUSY_NS;
    return doublings < 3 ? BUSY_AWAITED_SHORTEST_NS << doublings : BUSY_AWAITED_NS;
}

/* Whether every message in flight rings the bell: no polling needed. */
static bool is_told(const ty_interpreter *in)
{
    const bool link_rings = in->link == NULL || in->link->rings;

    return in->options.transport->rings_always && link_rings &&
           !interpreter_exchange_is_passing(in);
}

/* While passes run on a device of their own, the core is free: messages that do not ring are polled
 * soon. */
static long linked_delay(long delay)
{
    return delay > 0 ? delay : LINKED_NS;
}

/* Sleeps at the transport's bell, which messages and the compute thread ring. */
static void rest_at_bell(ty_interpreter *in, uint32_t seen, long delay)
{
    ty_transport *transport = in->options.transport;
    const bool is_quiet = delay == BUSY_NS || delay == UNTIL_RUNG_NS; /* messages can wait */
    const long quiet =
        !is_quiet && delay > BUSY_AWAITED_SHORTEST_NS ? BUSY_AWAITED_SHORTEST_NS : delay;

    transport->sleep(transport, 0, seen, quiet,
                     is_told(in) ? UNTIL_RUNG_NS : ty_transport_told_ns(transport, 0, delay));
}

typedef struct polled_state { /* counters before a poll */
    uint64_t generation;
    uint32_t bell;
} polled_state;

/* Sleeps until the compute thread ended an instruction or has none to run, or a message rings; or
 * briefly if messages in flight do not ring. */
static void rest(ty_interpreter *in, const polled_state *seen, ty_backoff *backoff)
{
    bool is_under_way = interpreter_messages_are_under_way(in) ||
                        interpreter_exchange_is_under_way(in) || in->control_running != NULL;
    const bool has_bell = in->options.transport->sleep != NULL;
    long delay = is_under_way ? ty_backoff_next(backoff) : 0;
    bool looks_again;
    struct timespec at;

    pthread_mutex_lock(&in->lock);
    looks_again = is_under_way && delay == 0 && in->is_compute_waiting;
    if (!is_under_way)
        delay = UNTIL_RUNG_NS;
    else if (in->link != NULL && in->link->rings)
        delay = linked_delay(delay);
    else if (!in->is_compute_waiting)
        delay = busy_delay(in, backoff);
    if (!looks_again && !has_bell && in->generation == seen->generation) {
        at = later(delay);
        if (is_under_way)
            pthread_cond_timedwait(&in->for_communication, &in->lock, &at);
        else
            pthread_cond_wait(&in->for_communication, &in->lock);
    }
    pthread_mutex_unlock(&in->lock);
    if (!looks_again && has_bell)
        rest_at_bell(in, seen->bell, delay);
}

static bool poll_state(ty_interpreter *in, polled_state *seen)
{
    bool must_go_on;

    seen->bell = ty_transport_bell(in->options.transport, 0);
    pthread_mutex_lock(&in->lock);
    seen->generation = in->generation;
    must_go_on = in->failure == TY_OK && in->controls_done < in->target;
    pthread_mutex_unlock(&in->lock);
    return must_go_on;
}

#ifdef __linux__
typedef struct scheduling { /* of sched_setattr(2), which libc has no name for here */
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t slice_ns, deadline_ns, period_ns;
} scheduling;
#endif

/* The system's scheduler (EEVDF; Linux 6.12 and later) lets a thread that asks for short slices run
 * before one in the middle of a long slice. The communication thread, if it is woken only when it
 * has work, then runs at once: otherwise the compute thread on the same core goes first, for up to
 * 3 ms. 0: the usual slice. Other systems refuse or ignore it. */
static void slices_ask(const ty_interpreter *in, uint64_t slice_ns)
{
#ifdef __linux__
    scheduling own = {.size = sizeof own};

    if (in->options.transport->sleep == NULL ||
        syscall(SYS_sched_getattr, 0, &own, sizeof own, 0) != 0 || own.policy != 0)
        return;
    own.slice_ns = slice_ns;
    (void)syscall(SYS_sched_setattr, 0, &own, 0);
#else
    (void)in, (void)slice_ns;
#endif
}

ty_status interpreter_communicate(ty_interpreter *in, ty_error *error)
{
    const uint64_t shortest_ns = 100000; /* shortest slice that the scheduler grants */
    ty_backoff backoff = {0};
    polled_state seen = {0};
    ty_status status = TY_OK;

#ifdef __linux__
    prctl(PR_SET_TIMERSLACK, 1000UL); /* short sleeps are else lengthened by 50 microseconds */
#endif
    slices_ask(in, shortest_ns);
    while (poll_state(in, &seen)) {
        bool is_moved = false;

        if (in->link != NULL && in->link->advance != NULL)
            TY_CHECK(in->link->advance(in->link, &is_moved, error), status, done);
        TY_CHECK(interpreter_messages_advance(in, &is_moved, error), status, done);
        TY_CHECK(interpreter_exchange_advance(in, &is_moved, error), status, done);
        TY_CHECK(control_advance(in, &is_moved, error), status, done);
        if (is_moved)
            backoff.rounds = 0;
        else
            rest(in, &seen, &backoff);
    }
done:
    slices_ask(in, 0);
    return status;
}

/* Memory is freed once no kernel of a link runs: freeing would wait for it. */
void interpreter_cancel(ty_interpreter *in)
{
    interpreter_messages_cancel(in);
    interpreter_exchange_cancel(in);
    ty_collective_cancel(in->control_running);
    interpreter_staging_release(in);
}
