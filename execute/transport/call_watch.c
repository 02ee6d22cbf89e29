#include "call_watch.h"

#include "ty_base.h"
#include "ty_run.h"
#include "worker_sign.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define LOOKS 8 /* checks within the patience */

struct ty_call_watch {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t closing;
    bool is_closing;
    double patience_s;
    _Atomic uint64_t number; /* calls begun plus calls ended: odd inside one */
    _Atomic clockid_t clock; /* of the thread that began the last one */
    char complaint[256];
};

static double seconds_of(clockid_t clock)
{
    struct timespec now = {0};

    clock_gettime(clock, &now); /* of a thread that has exited: 0 */
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Waits until the watch is closed, or it is time for the next check. */
static bool is_closing(ty_call_watch *watch)
{
    const double until_s = seconds_of(CLOCK_MONOTONIC) + watch->patience_s / LOOKS;
    const struct timespec until = {(time_t)until_s,
                                   (long)(1e9 * (until_s - (double)(time_t)until_s))};
    int code = 0;
    bool is;

    pthread_mutex_lock(&watch->mutex);
    while (!watch->is_closing && code == 0)
        code = pthread_cond_timedwait(&watch->closing, &watch->mutex, &until);
    is = watch->is_closing;
    pthread_mutex_unlock(&watch->mutex);
    return is;
}

static void *watch_main(void *argument)
{
    ty_call_watch *watch = argument;
    uint64_t seen = 0;
    double used_s = 0, then_s = 0, then_used_s = 0;

    while (!is_closing(watch)) {
        const uint64_t number = atomic_load(&watch->number);
        const double now_used_s = number % 2 != 0 ? seconds_of(atomic_load(&watch->clock)) : 0;
        const double now_s = seconds_of(CLOCK_MONOTONIC);
        /* No thread uses more than the elapsed time, whatever its clock says. */
        used_s = number % 2 == 0 || number != seen
                     ? 0
                     : used_s + fmax(0, fmin(now_used_s - then_used_s, now_s - then_s));
        seen = number;
        then_s = now_s;
        then_used_s = now_used_s;
        if (used_s >= watch->patience_s) {
            fprintf(stderr, "%s\n", watch->complaint);
            ty_worker_sign(TY_WORKER_SAID);
            _exit(EXIT_FAILURE);
        }
    }
    return NULL;
}

ty_status ty_call_watch_open(double patience_s, const char *complaint, ty_call_watch **out,
                             ty_error *error)
{
    ty_call_watch *watch = ty_alloc(1, sizeof *watch);
    pthread_condattr_t steady;
    sigset_t all, before;
    int code;

    TY_TRY(ty_check_memory(watch != NULL, error));
    watch->patience_s = patience_s;
    snprintf(watch->complaint, sizeof watch->complaint, "%s", complaint);
    pthread_mutex_init(&watch->mutex, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&watch->closing, &steady);
    pthread_condattr_destroy(&steady);
    sigfillset(&all); /* other threads handle signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(&watch->thread, NULL, watch_main, watch);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) {
        pthread_cond_destroy(&watch->closing);
        pthread_mutex_destroy(&watch->mutex);
        ty_free(watch);
        return ty_fail(error, TY_EBACKEND, "a thread does not start (error %d)", code);
    }
    *out = watch;
    return TY_OK;
}

void ty_call_watch_begin(ty_call_watch *watch)
{
    clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;

    pthread_getcpuclockid(pthread_self(), &clock);
    atomic_store_explicit(&watch->clock, clock, memory_order_relaxed);
    ty_call_watch_end(watch);
}

void ty_call_watch_end(ty_call_watch *watch)
{
    const uint64_t number = atomic_load_explicit(&watch->number, memory_order_relaxed);

    atomic_store_explicit(&watch->number, number + 1, memory_order_release);
}

void ty_call_watch_close(ty_call_watch *watch)
{
    if (watch == NULL)
        return;
    pthread_mutex_lock(&watch->mutex);
    watch->is_closing = true;
    pthread_cond_signal(&watch->closing);
    pthread_mutex_unlock(&watch->mutex);
    pthread_join(watch->thread, NULL);
    pthread_cond_destroy(&watch->closing);
    pthread_mutex_destroy(&watch->mutex);
    ty_free(watch);
}
