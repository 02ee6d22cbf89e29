/**
 * @file gunzip.h
 * Packed files in memory. Internal to workloads/.
 */
#ifndef TY_WORKLOADS_GUNZIP_H
#define TY_WORKLOADS_GUNZIP_H

#include "ty_core.h"

/** Most bytes of a packed file, unpacked: a thousandth of it can be the file. */
#define TY_GUNZIP_LIMIT ((size_t)256 << 20)

bool ty_is_gzip(const char *bytes, size_t length);
/**
 * Replaces bytes from ty_file_read by what is packed in them, in one member or several, terminated
 * by a NUL.
 * @return TY_EPARSE for a broken or cut-off file, one with something else behind, and above the
 * limit; *bytes are then unchanged.
 */
ty_status ty_gunzip(const char *path, char **bytes, size_t *length, ty_error *error) TY_MUST_CHECK;

#endif
