/** Where a run keeps what nobody needs after it: folders and files that go with it, and, where it
 *  was killed, with the next start. */
#ifndef TY_RUN_FOLDER_H
#define TY_RUN_FOLDER_H

#include "ty_base.h"

#include <limits.h>

/**
 * Makes a folder in $TMPDIR or /tmp that only this user may enter, and removes those of runs that
 * are gone.
 * @param held [out] keeps the folder from other starts, until ty_run_folder_remove
 */
ty_status ty_run_folder_make(char folder[PATH_MAX], int *held, ty_error *error) TY_MUST_CHECK;

#define TY_RUN_CHECKPOINT "checkpoint" /* what a run may keep there beside its job */

/** The same in /dev/shm, for memory that ranks share through files: Open MPI's own place is
 *  /dev/shm itself, where segments of a run that was killed stay.
 *  @return what holds it; the folder is "" where there can be none */
int ty_run_segments_make(char folder[PATH_MAX]);

/** With all that is in it; "" is ignored. */
void ty_run_folder_remove(const char *folder, int held);

#endif
