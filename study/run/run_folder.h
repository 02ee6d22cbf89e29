/** Temporary folders and files of a run, removed at its end or, if it was killed, by the next
 * start. */
#ifndef TY_RUN_FOLDER_H
#define TY_RUN_FOLDER_H

#include "ty_base.h"

#include <limits.h>

/**
 * Makes a folder in $TMPDIR or /tmp that only this user may enter, and removes those of ended runs.
 * @param held [out] lock of the folder until ty_run_folder_remove
 */
ty_status ty_run_folder_make(char folder[PATH_MAX], int *held, ty_error *error) TY_MUST_CHECK;

#define TY_RUN_CHECKPOINT "checkpoint" /* a checkpoint in it, next to the job */

/** The same in /dev/shm, for files of shared memory: Open MPI would use /dev/shm itself, where
 * segments of a killed run stay.
 * @return its lock; the folder is "" if it cannot be made */
int ty_run_segments_make(char folder[PATH_MAX]);

/** Removes a folder with its contents; ignores "". */
void ty_run_folder_remove(const char *folder, int held);

#endif
