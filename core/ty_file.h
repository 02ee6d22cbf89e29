/**
 * @file ty_file.h
 * Files as a whole: read completely, or replaced completely.
 */
#ifndef TY_FILE_H
#define TY_FILE_H

#include "ty_status.h"
#include "ty_text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * For files that are mapped, or read by a library: a pipe, which opening might wait for without
 * end, a folder or a device is refused.
 * @return TY_EPARSE; TY_EIO where nothing is there
 */
ty_status ty_file_check_plain(const char *path, ty_error *error) TY_MUST_CHECK;
/**
 * Reads all of `path`; "-" is standard input.
 * @param limit   refuses larger files (TY_EPARSE); 0 for 1 GiB
 * @param bytes   [out] terminated with a NUL that `length` does not count; free with ty_free
 */
ty_status ty_file_read(const char *path, uint64_t limit, char **bytes, size_t *length,
                       ty_error *error) TY_MUST_CHECK;

/**
 * Writes `path` so that it holds either its old content or all of the new one: a temporary file
 * beside it, flushed to disk, then renamed. "-" is standard output. On failure (full disk
 * included) the temporary file is removed and `path` is untouched.
 */
ty_status ty_file_write(const char *path, const void *bytes, size_t length,
                        ty_error *error) TY_MUST_CHECK;

/**
 * The same of what is written piece by piece, for files that need not fit the memory: `path` is
 * replaced by ty_file_writer_finish. Not for "-", devices and pipes (TY_EIO).
 */
typedef struct ty_file_writer ty_file_writer;
ty_status ty_file_writer_open(const char *path, ty_file_writer **out,
                              ty_error *error) TY_MUST_CHECK;
ty_status ty_file_writer_add(ty_file_writer *writer, const void *bytes, size_t length,
                             ty_error *error) TY_MUST_CHECK;
/** Gives the writer up and sets it to NULL, also on failure. */
ty_status ty_file_writer_finish(ty_file_writer **writer, ty_error *error) TY_MUST_CHECK;
/** Removes what was written; NULL is ignored. */
void ty_file_writer_drop(ty_file_writer *writer);

/** TY_EIO where ty_file_write could not write now: before hours of work, not behind them. */
ty_status ty_file_try(const char *path, ty_error *error) TY_MUST_CHECK;

/** The same of a text; one that failed is not written, and the status says why. */
ty_status ty_file_write_text(const char *path, const ty_text *text, ty_error *error) TY_MUST_CHECK;

/** Creates a directory and its parents; fine if it exists. */
ty_status ty_directory_make(const char *path, ty_error *error) TY_MUST_CHECK;

bool ty_file_exists(const char *path);

/**
 * Where a data file that comes with Trainyard lies, e.g. ("workloads/zoo", "lenet.json").
 * Looked for under $TRAINYARD_DATA, then beside the installed program
 * (../share/trainyard), then in the source tree the program was built from.
 * @param path [out] free with ty_free; TY_EIO when there is no such file or directory.
 */
ty_status ty_data_path(const char *folder, const char *name, char **path,
                       ty_error *error) TY_MUST_CHECK;

/**
 * Names of the files in a folder of such data that end in `suffix`, without it, sorted: what a
 * catalogue of one file each has. TY_EIO where there is none.
 * @param names [out] free with ty_names_free, or each and the array with ty_free
 */
ty_status ty_data_names(const char *folder, const char *suffix, char ***names, uint32_t *count,
                        ty_error *error) TY_MUST_CHECK;
void ty_names_free(char **names, uint32_t count);

/**
 * The entry for `word` in a catalogue's `trainyard.aliases/1` (docs/reference/file-formats.md),
 * read as ty_name_find reads.
 * @param name [out] free with ty_free; NULL: no entry
 */
ty_status ty_alias_find(const char *folder, const char *file, const char *word, char **name,
                        ty_error *error) TY_MUST_CHECK;
/**
 * Strips the vendor or cloud from a name: "aws p5" becomes "p5".
 * @param rest [out] in `word`, after the first of the file's "prefixes" that it begins with; NULL:
 *             none
 */
ty_status ty_alias_strip(const char *folder, const char *file, const char *word, const char **rest,
                         ty_error *error) TY_MUST_CHECK;

#endif
