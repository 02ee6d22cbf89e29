/**
 * @file ty_base.h
 * Common ground of all modules.
 *
 *   status    how a call fails: a status for the program, a sentence for the person
 *   memory    checked allocation, arenas
 *   text      growing strings, units, "did you mean", digests
 *   quote     strings for shells, comments and terminals
 *   file      whole files, atomic writing, the data folder
 *   progress  one progress line on stderr
 */
#ifndef TY_BASE_H
#define TY_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ==== status ================================================================================== */

/*
 * Failure of a call: a status for the program, a sentence for the person.
 *
 *     ty_error error = {0};
 *     if (ty_plan_load("plan.json", &plan, &error) != TY_OK)
 *         fprintf(stderr, "error: %s\n", error.message);
 */

typedef enum ty_status {
    TY_OK = 0,
    TY_EINVAL,       /* an argument is outside its documented range */
    TY_ENOMEM,       /* memory ran out, or a size overflowed */
    TY_EIO,          /* a file could not be read or written */
    TY_EPARSE,       /* a file was read but its content is wrong */
    TY_EINFEASIBLE,  /* the question has no answer: no plan fits */
    TY_ELIMIT,       /* a search or simulation budget is spent */
    TY_EUNSUPPORTED, /* not built in, or not on this machine */
    TY_EBACKEND,     /* SimGrid, igraph, MPI, oneDNN, CUDA or NCCL failed */
    TY_EINTERRUPTED  /* the user asked to stop */
} ty_status;

/** Receives the detail of a failure. Owned by the caller; zero-initialize it. */
typedef struct ty_error {
    ty_status status;
    char message[512]; /* "plan.json:/stages/0/replicas: found -1, expected an integer > 0" */
} ty_error;

#if defined(__GNUC__)
#define TY_MUST_CHECK __attribute__((warn_unused_result))
#define TY_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define TY_MUST_CHECK
#define TY_PRINTF(text, first)
#endif

/** Runs `call` and returns its status from the function unless it is TY_OK: for functions with
 * nothing to release, as NCCL's NCCLCHECK. */
#define TY_TRY(call)                                                                               \
    do {                                                                                           \
        const ty_status tried = (call);                                                            \
        if (tried != TY_OK)                                                                        \
            return tried;                                                                          \
    } while (0)

/** Runs `call`, keeps its result in `status`, and jumps to `label` unless it is TY_OK. */
#define TY_CHECK(call, status, label)                                                              \
    do {                                                                                           \
        if (((status) = (call)) != TY_OK)                                                          \
            goto label;                                                                            \
    } while (0)

/**
 * Fills `error` (which may be NULL) and returns `status`, so a failure is one statement:
 * `return ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));`
 */
ty_status ty_fail(ty_error *error, ty_status status, const char *format, ...) TY_PRINTF(3, 4);

/** TY_OK, or TY_ENOMEM with its message if an allocation failed. */
static inline ty_status ty_check_memory(bool is_there, ty_error *error)
{
    if (is_there)
        return TY_OK;
    (void)ty_fail(error, TY_ENOMEM, "out of memory");
    return TY_ENOMEM;
}

/** A short fixed word for a status: "ok", "bad input", ... Never NULL. */
const char *ty_status_name(ty_status status);

/* ==== memory ================================================================================== */

/*
 * Allocation for the whole project. Sizes are multiplied with an overflow check; tests can make
 * the n-th allocation fail.
 */

/** `count` zeroed elements of `size` bytes; NULL if memory runs out or the product overflows. A
 *  zero count gives a valid pointer. */
void *ty_alloc(size_t count, size_t size);

/** The same for tensors, which are read repeatedly: requests large pages for a large block, if the
 * system has them (transparent huge pages of Linux, `madvise` or `always`), to reduce address
 * translation. It requests only pages inside the block. */
void *ty_alloc_large(size_t count, size_t size);

/** Grows or shrinks `block` (NULL allowed) to `count` elements of `size` bytes; new bytes are not
 *  cleared. NULL on failure, `block` is then untouched. */
void *ty_resize(void *block, size_t count, size_t size);

/** Reserves space for one more than `count` elements of `size` bytes. The capacity doubles, so n
 * additions cost O(n).
 * @param array the address of the pointer to them, of any type; NULL and room 0 at first */
ty_status ty_reserve(void *array, uint32_t count, uint32_t *room, size_t size,
                     ty_error *error) TY_MUST_CHECK;

/** Releases a block from ty_alloc, ty_resize or ty_strdup; NULL is ignored. */
void ty_free(void *block);

/** Copy of `text` (NULL gives NULL). NULL also if memory runs out. */
char *ty_strdup(const char *text);

/** Copy of the first `length` bytes of `text`, terminated. */
char *ty_strndup(const char *text, size_t length);

/**
 * For tests: makes the allocation number `countdown` from now (1 is the next one) and all later
 * ones fail, until a call with 0. Process-wide; the one deliberate global of the project.
 */
void ty_memory_fail_after(long countdown);

/** An arena: many small blocks, freed at once. Blocks are zeroed and aligned for any type. */
typedef struct ty_arena ty_arena;
ty_arena *ty_arena_new(void);
void *ty_arena_alloc(ty_arena *arena, size_t count, size_t size);
char *ty_arena_strdup(ty_arena *arena, const char *text);
void ty_arena_free(ty_arena *arena);

/* ==== text ==================================================================================== */

/*
 * Text: growing strings, quantities with units, names close to a misspelled one, digests.
 */

/**
 * A growing string. Zero-initialize; append; then either ty_text_take() the result or
 * ty_text_clear(). A failed append sets `failed` and later ones do nothing, so only the end needs a
 * check.
 */
typedef struct ty_text {
    char *data; /* terminated; NULL if nothing was appended */
    size_t length, capacity;
    ty_status failed; /* TY_OK; TY_ENOMEM; TY_EINVAL: a value without a text form was written */
} ty_text;

void ty_text_append(ty_text *text, const char *bytes, size_t length);
void ty_text_add(ty_text *text, const char *string);
void ty_text_addf(ty_text *text, const char *format, ...) TY_PRINTF(2, 3);
/** TY_OK, or why an append failed: for code that uses `data` and `length` in place. */
ty_status ty_text_check(const ty_text *text, ty_error *error) TY_MUST_CHECK;
/** Transfers the string to the caller (never NULL on TY_OK; "" if nothing was appended) and empties
 * `text`. */
ty_status ty_text_take(ty_text *text, char **out, ty_error *error) TY_MUST_CHECK;
void ty_text_clear(ty_text *text);

/** Skips a byte order mark of UTF-8, which is not part of a file's content (Unicode 15, 23.8). */
void ty_skip_mark(const char **text, size_t *length);

/** Shortest decimal that reads back as exactly `value`, locale-independent; `value` is finite. */
void ty_format_number(double value, char out[32]);

/** "1.86 M", "25.6 GB", "3.2 GiB", "12.4 ms", "2.5 GB/s": three significant digits without trailing
 * zeros, for display. Seconds become minutes, hours and days from two of these on. */
void ty_format_count(double value, char out[32]);
void ty_format_bytes(double bytes, char out[32]);  /* decimal: kB, MB, GB, TB */
void ty_format_memory(double bytes, char out[32]); /* binary: KiB, MiB, GiB, TiB */
void ty_format_seconds(double seconds, char out[32]);
void ty_format_bandwidth(double bytes_per_s, char out[32]);
/** A price, and a number of tokens: "$2.50", "$6,020", "$593k"; "300B". */
void ty_format_usd(double usd, char out[32]);
void ty_format_tokens(double tokens, char out[32]);
/** "0.42", "193", "1,457": days, before the word or in a column of days. */
void ty_format_days(double days, char out[32]);

/**
 * Reads a quantity with its unit. Bandwidth: "100Gb/s", "25GB/s", "400Gbps", "1e9" (bytes/s). Size:
 * "64MiB", "25MB", "4096". Time: "5us", "1.5ms", "3s", "2e-6".
 * @return TY_EINVAL naming the text and the known units; never accepts a negative, infinite or NaN
 *   value, or trailing characters.
 */
ty_status ty_parse_bandwidth(const char *text, double *bytes_per_s, ty_error *error) TY_MUST_CHECK;
ty_status ty_parse_bytes(const char *text, uint64_t *bytes, ty_error *error) TY_MUST_CHECK;
ty_status ty_parse_seconds(const char *text, double *seconds, ty_error *error) TY_MUST_CHECK;
ty_status ty_parse_flop_rate(const char *text, double *flop_per_s, ty_error *error) TY_MUST_CHECK;
/** A large number above 0: "15.6T", "300B", "2M", "1e12". */
ty_status ty_parse_count(const char *text, double *count, ty_error *error) TY_MUST_CHECK;
/** A sequence length in [1, maximum]: "8192", "8k" (8,192) or "1M" (1,048,576). */
ty_status ty_parse_length(const char *text, uint64_t maximum, uint64_t *tokens,
                          ty_error *error) TY_MUST_CHECK;
/** A decimal integer in [minimum, maximum]; nothing before or after it. */
ty_status ty_parse_uint(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *out,
                        ty_error *error) TY_MUST_CHECK;

/**
 * The entry of `names` closest to `word` (edit distance, at most a third of its length), or NULL.
 * @param stride bytes between two `const char *` in the table; sizeof(char *) for a plain array.
 */
const char *ty_suggest(const char *word, const void *names, size_t count, size_t stride);

/**
 * The entry of `names` that matches a typed `word`: case, blanks and - _ . do not matter ("GPT-2"
 * is "gpt2"), and a beginning of a name before one of - _ . matches if it is unique ("p4d" is
 * "p4d.24xlarge"). NULL: none, or several.
 * @param stride   as for ty_suggest
 * @param is_whole [out] whether the word is the full name: a beginning ranks below an alias
 */
const char *ty_name_find(const char *word, const void *names, size_t count, size_t stride,
                         bool *is_whole);

/** SHA-256 of `length` bytes as 64 lower-case hexadecimal digits and a terminator. */
typedef struct ty_digest {
    char hex[65];
} ty_digest;
ty_digest ty_digest_of(const void *bytes, size_t length);

/* ==== quote =================================================================================== */

/** The greatest common divisor; `a` if `b` is 0. */
uint64_t ty_greatest_divisor(uint64_t a, uint64_t b);
/** The next divisor of a number after another one, or after 0; 0: none. A loop over all divisors
 * takes O(sqrt(number)). */
uint32_t ty_next_divisor(uint32_t number, uint32_t after);

/*
 * Quoting of foreign text for its readers: shells, comments, terminals. Names of clusters, hosts
 * and layers, paths and options may be anything; write them into a file or to a terminal only with
 * the function for that format. Launch files have the filters of their templates
 * (reports/launch/launch.h), JSON has ty_json_put_string.
 */

/**
 * Whether a text is UTF-8 that does not affect the text around it: no controls (C0, DEL, C1), no
 * line or paragraph separators (U+2028, U+2029), no direction marks (U+200E, U+200F, U+202A to
 * U+202E, U+2066 to U+2069), no U+FEFF, no characters without width and no tags. All names in
 * Trainyard's files satisfy this; readers reject any other.
 */
bool ty_is_printable(const char *text);

/** Bytes of the first character of `left` bytes; 0 if ty_is_printable rejects it. */
size_t ty_printable_length(const char *text, size_t left);

/**
 * Appends a text with escapes for all characters that ty_is_printable rejects: "\x1b", "\u2028";
 * bytes that are not UTF-8 as "\xff". For comments of files and for terminals.
 * @param kept characters below U+0020 that stay unchanged, such as "\n"; "" for none
 */
void ty_quote_visible(ty_text *text, const char *string, const char *kept);

/** Appends one word of a POSIX shell: unquoted if that is safe, else in single quotes. */
void ty_quote_shell(ty_text *text, const char *word);

/* ==== file ==================================================================================== */

/*
 * Complete files: read completely, or replaced completely.
 */

/**
 * For files that are mapped, or read by a library. Rejects folders, devices and pipes, because
 * opening a pipe may block forever.
 * @return TY_EPARSE; TY_EIO if there is no file
 */
ty_status ty_file_check_plain(const char *path, ty_error *error) TY_MUST_CHECK;
/**
 * Reads all of `path`; "-" is standard input.
 * @param limit rejects larger files (TY_EPARSE); 0 for 1 GiB
 * @param bytes   [out] terminated with a NUL that `length` does not count; free with ty_free
 */
ty_status ty_file_read(const char *path, uint64_t limit, char **bytes, size_t *length,
                       ty_error *error) TY_MUST_CHECK;

/**
 * Writes `path` atomically: it has either its old or its new content. Writes a temporary file in
 * the same folder, flushes it to disk, and renames it. "-" is standard output. On failure (full
 * disk included) the temporary file is removed and `path` is untouched.
 */
ty_status ty_file_write(const char *path, const void *bytes, size_t length,
                        ty_error *error) TY_MUST_CHECK;

/**
 * The same in several calls, for files that may exceed memory: ty_file_writer_finish replaces
 * `path`. Not for "-", devices and pipes (TY_EIO).
 */
typedef struct ty_file_writer ty_file_writer;
ty_status ty_file_writer_open(const char *path, ty_file_writer **out,
                              ty_error *error) TY_MUST_CHECK;
ty_status ty_file_writer_add(ty_file_writer *writer, const void *bytes, size_t length,
                             ty_error *error) TY_MUST_CHECK;
/** Replaces the file, frees the writer and sets it to NULL, also on failure. */
ty_status ty_file_writer_finish(ty_file_writer **writer, ty_error *error) TY_MUST_CHECK;
/** Removes the temporary file and frees the writer; NULL is ignored. */
void ty_file_writer_drop(ty_file_writer *writer);

/** TY_EIO if ty_file_write could not write now: finds out before hours of work, not after. */
ty_status ty_file_try(const char *path, ty_error *error) TY_MUST_CHECK;

/** ty_file_write for a text; a failed text is not written, and the status is its own. */
ty_status ty_file_write_text(const char *path, const ty_text *text, ty_error *error) TY_MUST_CHECK;

/** Creates a directory and its parents; fine if it exists. */
ty_status ty_directory_make(const char *path, ty_error *error) TY_MUST_CHECK;

bool ty_file_exists(const char *path);

/**
 * The path of a data file of Trainyard, e.g. ("workloads/zoo", "lenet.json"). Searches
 * $TRAINYARD_DATA, then the folder of the installed program (../share/trainyard), then the source
 * tree of the build.
 * @param path [out] free with ty_free; TY_EIO if there is no such file or directory.
 */
ty_status ty_data_path(const char *folder, const char *name, char **path,
                       ty_error *error) TY_MUST_CHECK;

/**
 * Sorted names of the files in a data folder that end in `suffix`, without it: the entries of a
 * catalogue with one file each. TY_EIO if there is none.
 * @param names [out] free with ty_names_free, or each and the array with ty_free
 */
ty_status ty_data_names(const char *folder, const char *suffix, char ***names, uint32_t *count,
                        ty_error *error) TY_MUST_CHECK;
void ty_names_free(char **names, uint32_t count);

/**
 * The entry for `word` in a catalogue's `trainyard.aliases/1` (docs/reference/file-formats.md),
 * matched as in ty_name_find.
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

/* ==== progress ================================================================================ */

/*
 * One line with the progress of a long job. On a terminal it is redrawn in place at most ten times
 * per second; elsewhere a plain line appears every ten seconds. It goes to the given stream, which
 * is stderr everywhere in Trainyard.
 *
 *     ty_progress progress;
 *     ty_progress_start(&progress, stderr, "training", 200, "steps");
 *     for (...) ty_progress_update(&progress, i, "loss 0.41");
 *     ty_progress_finish(&progress, "200 steps, loss 0.38");
 */

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
