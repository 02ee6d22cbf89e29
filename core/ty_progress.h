/**
 * @file ty_progress.h
 * One line that says how far a long job is. On a terminal it is redrawn in place at most ten times
 * a second; elsewhere a plain line appears every ten seconds. Goes to the stream it is given, which
 * is stderr everywhere in Trainyard.
 *
 *     ty_progress progress;
 *     ty_progress_start(&progress, stderr, "training", 200, "steps");
 *     for (...) ty_progress_update(&progress, i, "loss 0.41");
 *     ty_progress_finish(&progress, "200 steps, loss 0.38");
 */
#ifndef TY_PROGRESS_H
#define TY_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct ty_progress {
    FILE *stream; /* NULL: silent */
    const char *title, *unit;
    uint64_t total; /* 0: unknown, no bar */
    bool is_terminal;
    double started_s, shown_s; /* CLOCK_MONOTONIC */
} ty_progress;

void ty_progress_start(ty_progress *progress, FILE *stream, const char *title, uint64_t total,
                       const char *unit);
void ty_progress_update(ty_progress *progress, uint64_t done, const char *note);
/** Replaces the line by "title: note (time)" and ends it. */
void ty_progress_finish(ty_progress *progress, const char *note);

/** Seconds on the monotonic clock; the zero is arbitrary but common to all processes of a host. */
double ty_now_s(void);

#endif
