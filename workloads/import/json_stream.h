/**
 * @file json_stream.h
 * Reads JSON sequentially in a fixed amount of memory, from a plain or gzip file: for traces of
 * hundreds of megabytes with few relevant members. Internal to workloads/.
 *
 *     TY_CHECK(ty_json_stream_open(path, &s, error), status, cleanup);
 *     TY_CHECK(ty_json_stream_enter(s, '{', error), status, cleanup);
 *     while (has_next) { ty_json_stream_next(...); ... read or skip its value ... }
 *
 * Every function fails with TY_EPARSE naming the byte of the text. ty_json_stream_is_cut() reports
 * a truncated text: the part read until then may still be useful.
 */
#ifndef TY_WORKLOADS_JSON_STREAM_H
#define TY_WORKLOADS_JSON_STREAM_H

#include "ty_core.h"

#define TY_JSON_STREAM_TEXT 4096 /* bytes of a stored string; longer ones are cut */
#define TY_JSON_STREAM_DEPTH 200 /* depth of a skipped value */
/** Largest unpacked text; bounds the time for a small compressed file. */
#define TY_JSON_STREAM_LIMIT ((uint64_t)8 << 30)

typedef struct ty_json_stream ty_json_stream;

ty_status ty_json_stream_open(const char *path, ty_json_stream **out,
                              ty_error *error) TY_MUST_CHECK;
void ty_json_stream_close(ty_json_stream *stream);
/** Whether the text, or the compressed file, ended in the middle. */
bool ty_json_stream_is_cut(const ty_json_stream *stream);

/** The first character of the next value: one of { [ " t f n N I - 0-9; 0 at the end of the text.
 */
ty_status ty_json_stream_peek(ty_json_stream *stream, char *out, ty_error *error) TY_MUST_CHECK;
/** Opens an object or array. */
ty_status ty_json_stream_enter(ty_json_stream *stream, char bracket, ty_error *error) TY_MUST_CHECK;
/**
 * Goes to the next element of the array, or member of the object, last entered and not left.
 * @param is_first [in, out] true before the first one
 * @param has_next [out] false at its closing bracket
 * @param key      of the member; NULL for arrays; TY_JSON_STREAM_TEXT bytes
 */
ty_status ty_json_stream_next(ty_json_stream *stream, char closing, bool *is_first, bool *has_next,
                              char *key, ty_error *error) TY_MUST_CHECK;
/** A string, cut to TY_JSON_STREAM_TEXT - 1 bytes. */
ty_status ty_json_stream_string(ty_json_stream *stream, char out[TY_JSON_STREAM_TEXT],
                                ty_error *error) TY_MUST_CHECK;
/** @param out [out] NaN for NaN, Infinity and -Infinity, as Python writes them */
ty_status ty_json_stream_number(ty_json_stream *stream, double *out, ty_error *error) TY_MUST_CHECK;
/** Skips any value, however large. */
ty_status ty_json_stream_skip(ty_json_stream *stream, ty_error *error) TY_MUST_CHECK;

#endif
