/* Detects hanging launchers. Open MPI's may hang if memory, files or processes are limited: it
 * waits in a lock for a rank that has ended, or ranks wait for one that was never started. */
#include "worker.h"

#include <stdlib.h>

#define PATIENCE_S 30.0

/* Timers and polling threads use less than this over the patience. A busy process gets more, even
 * with dozens on a core. */
#define SILENCE_CPU_S 0.05

/* Fewer retransmissions may mean a lossy network: TCP waits at least 0.2 s, and twice as long each
 * time. */
#define UNANSWERED_COUNT 4

double ty_launch_patience_s(void)
{
    const char *asked = getenv("TRAINYARD_START_SECONDS");
    char *end;
    double seconds;

    if (asked == NULL)
        return PATIENCE_S;
    seconds = strtod(asked, &end);
    return end != asked && *end == '\0' && seconds >= 0 ? seconds : PATIENCE_S;
}

/* TCP retransmits for a quarter of an hour, and keep-alive probes, which detect lost hosts, only
 * run when all sent data is acknowledged. */
static bool is_unanswered(ty_launch_watch *watch, const ty_process_tree *tree, double now_s)
{
    if (tree->unanswered_count == 0 || tree->unanswered_socket != watch->unanswered_socket ||
        tree->unanswered_count < watch->unanswered_count)
        watch->unanswered_since_s = now_s;
    watch->unanswered_socket = tree->unanswered_socket;
    watch->unanswered_count = tree->unanswered_count;
    return tree->unanswered_count >= UNANSWERED_COUNT &&
           now_s - watch->unanswered_since_s > watch->patience_s;
}

const char *ty_launch_is_lost(ty_launch_watch *watch, const ty_process_tree *tree, bool have_begun,
                              double now_s)
{
    const bool is_stuck = tree->unreaped_count > 0 || (have_begun && tree->child_count == 0);

    if (!watch->is_watching || tree->cpu_s - watch->cpu_s >= SILENCE_CPU_S) {
        watch->is_watching = true;
        watch->cpu_s = tree->cpu_s;
        watch->silent_since_s = now_s;
    }
    if (!is_stuck)
        watch->stuck_since_s = 0;
    else if (watch->stuck_since_s <= 0)
        watch->stuck_since_s = now_s;
    if (is_stuck && now_s - watch->stuck_since_s > watch->patience_s)
        return "took no note of ranks that ended";
    if (is_unanswered(watch, tree, now_s))
        return "had no answer from another host: it, or the network to it, is gone";
    if (have_begun)
        return NULL;
    if (now_s - watch->silent_since_s > watch->patience_s)
        return "did not bring up the ranks: all was silent";
    if (tree->cpu_s > 2 * watch->patience_s * tree->process_count)
        return "did not bring up the ranks, for all the processor time they took";
    return NULL;
}
