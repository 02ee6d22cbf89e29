/**
 * @file worker.h
 * What stands around the worker's processes. Internal to study/.
 */
#ifndef TY_STUDY_WORKER_H
#define TY_STUDY_WORKER_H

#include "ty_study.h"

#include <sys/types.h>

/** TY_EUNSUPPORTED where this machine's cores or memory are too few for so many processes of the
 * job. */
ty_status ty_processes_check(const ty_job *job, uint32_t processes, ty_error *error) TY_MUST_CHECK;

/** ", under a limit of ..." for each limit of this process that memory or files run into; ""
 * without one. */
void ty_limits_text(ty_text *text);

/** A process and all below it. */
typedef struct ty_process_tree {
    uint32_t process_count;  /* itself included */
    uint32_t child_count;    /* next to it, ended ones that it has not waited for included */
    uint32_t unreaped_count; /* of these, the ended ones */
    double cpu_s;            /* of all of them, and of those below that were waited for */
    /* Of their TCP connections in the network of the first, the one whose data was sent again the
     * most times since the other side acknowledged any; 0 and 0: all is acknowledged. */
    uint64_t unanswered_socket; /* its inode */
    uint32_t unanswered_count;
} ty_process_tree;

/** False, and nothing written, where /proc does not show the process. Reads all of /proc. */
bool ty_process_tree_read(pid_t top, ty_process_tree *out);
/** Kills a process of ours, its group, and all below it. */
void ty_process_tree_kill(pid_t top);

/** Seconds that a launcher may be silent: $TRAINYARD_START_SECONDS, 0 is for ever; or 30. */
double ty_launch_patience_s(void);

/** Whether a launcher will come to nothing. Zero-initialised, and asked about once a second. */
typedef struct ty_launch_watch {
    double patience_s; /* > 0 */
    bool is_watching;
    double cpu_s, silent_since_s; /* what was used when it last used any, and when that was */
    double stuck_since_s;         /* 0: it is not */
    uint64_t unanswered_socket;   /* of the tree when asked last */
    uint32_t unanswered_count;
    double unanswered_since_s;
} ty_launch_watch;

/**
 * A launcher that has not brought up its ranks is given up when it and all below it used no
 * processor for `patience_s`, or more than twice that for each process. Whether or not ranks have
 * begun, it is given up when for `patience_s` it takes no note of a child that ended, or, once they
 * have begun, has no child and does not end, or a host acknowledges nothing that was sent to it.
 * @param have_begun the ranks have
 * @param now_s      of ty_now_s
 * @return why, in words that follow the launcher's name; NULL: there is hope
 */
const char *ty_launch_is_lost(ty_launch_watch *watch, const ty_process_tree *tree, bool have_begun,
                              double now_s);

/**
 * Moves this process into a network namespace that has nothing but a loopback, if the system lets
 * it and $TRAINYARD_NETWORK is not "host".
 */
void ty_private_network_enter(void);
/** False where the user has asked for the host's network, as runs over several hosts need it. */
bool ty_private_network_is_wanted(void);

#endif
