/**
 * @file gunzip.h
 * Unpacks gzip files in memory. Internal to workloads/.
 */
#ifndef TY_WORKLOADS_GUNZIP_H
#define TY_WORKLOADS_GUNZIP_H

#include "ty_core.h"

/** Largest unpacked size; the packed file can be a thousandth of it. */
#define TY_GUNZIP_LIMIT ((size_t)256 << 20)

bool ty_is_gzip(const char *bytes, size_t length);
/**
 * Replaces bytes from ty_file_read by their unpacked content, of one or several members, terminated
 * by a NUL.
 * @return TY_EPARSE for a broken or truncated file, one with trailing data, and above the limit;
 *         *bytes are then unchanged.
 */
ty_status ty_gunzip(const char *path, char **bytes, size_t *length, ty_error *error) TY_MUST_CHECK;

#endif
