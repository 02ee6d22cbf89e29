/* The same simulation with several seeds, as many child processes at once as there are cores. */
#include "ty_simulate.h"

#include "ty_memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { MOST_THREADS = 64 };

typedef struct batch {
    const ty_plan *plan;
    const ty_program *program;
    const ty_costs *costs;
    const ty_cluster *cluster;
    const ty_simulate_options *options;
    uint32_t seeds;
    double *step_times_s;
    atomic_uint next;
    pthread_mutex_t lock; /* of the first failure */
    ty_status status;
    ty_error *error;
} batch;

static ty_status simulate_one(const batch *b, uint32_t index, ty_error *error)
{
    ty_simulate_options options = *b->options;
    ty_timeline *timeline = NULL;
    ty_step_summary summary;
    ty_status status;

    options.seed += index;
    TY_CHECK(ty_simulate(b->plan, b->program, b->costs, b->cluster, &options, &timeline, error),
             status, done);
    TY_CHECK(ty_timeline_summarize(b->plan, b->program, timeline, &summary, error), status, done);
    b->step_times_s[index] = summary.step_time_s;
done:
    ty_timeline_free(timeline);
    return status;
}

static void *take_seeds(void *context)
{
    batch *b = context;

    for (;;) {
        ty_error error = {0};
        const uint32_t index = atomic_fetch_add(&b->next, 1);
        if (index >= b->seeds)
            return NULL;
        const ty_status status = simulate_one(b, index, &error);
        if (status == TY_OK)
            continue;
        pthread_mutex_lock(&b->lock);
        if (b->status == TY_OK) {
            b->status = status;
            (void)ty_fail(b->error, status, "seed %llu: %s",
                          (unsigned long long)(b->options->seed + index), error.message);
        }
        pthread_mutex_unlock(&b->lock);
        atomic_store(&b->next, b->seeds); /* the others may stop */
        return NULL;
    }
}

static uint32_t thread_count(uint32_t seeds)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t count = cores > 0 ? (uint32_t)cores : 1;

    if (count > MOST_THREADS)
        count = MOST_THREADS;
    return count < seeds ? count : seeds;
}

ty_status ty_simulate_seeds(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                            const ty_cluster *cluster, const ty_simulate_options *options,
                            uint32_t seeds, double *step_times_s, ty_error *error)
{
    const uint32_t wanted = thread_count(seeds);
    batch b = {plan, program, costs, cluster, options, seeds, step_times_s, .error = error};
    pthread_t threads[MOST_THREADS];
    uint32_t started = 0;

    if (pthread_mutex_init(&b.lock, NULL) != 0)
        return ty_fail(error, TY_ENOMEM, "simulation: memory ran out");
    while (started + 1 < wanted && pthread_create(&threads[started], NULL, take_seeds, &b) == 0)
        started++;
    (void)take_seeds(&b); /* this one works too, and alone where no other could be started */
    for (uint32_t t = 0; t < started; t++)
        pthread_join(threads[t], NULL);
    pthread_mutex_destroy(&b.lock);
    return b.status;
}
