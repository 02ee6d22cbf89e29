/**
 * @file tar_entries.h
 * The files in a tar file that is in memory: POSIX ustar and pax, and GNU's long names. Internal to
 * execute/.
 */
#ifndef TY_EXECUTE_TAR_ENTRIES_H
#define TY_EXECUTE_TAR_ENTRIES_H

#include "ty_core.h"

#define TAR_NAME_SIZE 1024

typedef struct tar_entry {
    char name[TAR_NAME_SIZE]; /* truncated if longer */
    uint64_t offset, bytes;
} tar_entry;

/**
 * The next plain file from `*at` on; skips other entries, and moves `*at` after the file.
 * @param name of the tar file, for messages
 * @param is_end [out] there is none
 * @return TY_EPARSE: not a tar header, or its size exceeds the file
 */
ty_status tar_next(const unsigned char *bytes, uint64_t length, uint64_t *at, const char *name,
                   tar_entry *out, bool *is_end, ty_error *error) TY_MUST_CHECK;

#endif
