/**
 * @file ty_input.h
 * Whether samples come as fast as they are used: what storage (ty_cluster.h) and the cores that
 * decode let through, for those that read at once.
 *
 *     ty_input_question q = {.levels = levels, .level_count = 2, .input = {.data_bytes = 1e12},
 *                            .sample_bytes = 110e3, .hosts = 4, .readers = 32, .host_readers = 8};
 *     TY_CHECK(ty_input_rate(&q, &outlook, error), status, done);
 *     total_samples_per_s = q.readers * outlook.samples_per_s; // bound by outlook.bound_by
 *
 * Levels and processors work side by side, and requests of the next samples are under way while
 * some arrive, so a latency costs no time but by what it lets through: a host has `requests` under
 * way, which is requests x request bytes / latency at most (Little, "A Proof for the Queuing
 * Formula L = lambda W", 1961).
 */
#ifndef TY_INPUT_H
#define TY_INPUT_H

#include "ty_cluster.h"
#include "ty_json.h"
#include "ty_status.h"
#include "ty_text.h"

#include <stdbool.h>
#include <stdint.h>

/** Which samples a host reads in an epoch. */
typedef enum ty_shuffle {
    TY_SHUFFLE_GLOBAL, /* others in each: what a cache keeps is asked for with its share of all */
    TY_SHUFFLE_HOST,   /* always the same ones, its share of the data */
    TY_SHUFFLE_COUNT
} ty_shuffle;
const char *ty_shuffle_name(ty_shuffle shuffle); /* "global" */

/** What is said of a training's samples beyond their workload. All 0: nothing. */
typedef struct ty_input {
    double data_bytes;           /* of all of them; 0: not known, and nothing is found in caches */
    double decode_samples_per_s; /* decoded and augmented by a core; 0: nothing to do */
    uint32_t cores;              /* of a host that do so and nothing else; 0 counts as 1 */
    bool is_first_epoch;         /* caches are empty: all is read from the last level */
    ty_shuffle shuffle;
} ty_input;
bool ty_input_is_said(const ty_input *input);

/**
 * "data=1.3TB,decode=250,cores=32,epoch=first,shuffle=host": sets what the words say, and leaves
 * the rest of `input` alone.
 * @return TY_EINVAL naming the key, what was found and what was expected
 */
ty_status ty_input_read(const char *text, ty_input *input, ty_error *error) TY_MUST_CHECK;
/** Appends all that is said in these words; nothing where nothing is. */
void ty_input_words(const ty_input *input, ty_text *text);

/** As a member of a document: all of it, and only where something is said. */
void ty_input_to_json(const ty_input *input, ty_json_writer *writer, const char *key);

typedef struct ty_input_question {
    const ty_storage *levels; /* [level_count] as a cluster has them; 0: storage keeps up */
    uint32_t level_count;
    ty_input input;
    double sample_bytes;                   /* > 0 */
    uint32_t hosts, readers, host_readers; /* that read at once, all alike: on so many hosts, in
                                              all, and on the host with the most; each >= 1 */
} ty_input_question;

typedef struct ty_input_outlook {
    double samples_per_s; /* that each reader gets while all read; HUGE_VAL: nothing limits it */
    const char *bound_by; /* name of a level, "decoding"; NULL: nothing */
    double level_share[TY_MOST_STORAGE]; /* of the samples, read from each level */
    /* The same in the parts that a simulation plays: what a reader takes for a sample whoever else
     * reads, and what it reads of the store that all hosts share, at most how fast. 0: nothing */
    double own_s, store_bytes, store_limit_bytes_per_s;
} ty_input_outlook;

/**
 * Each level keeps what those before do not, as far as it reaches, and the data stay where they
 * are. n readers of which k are on a host get, of V bytes each,
 *   of a level of the host:       V x share / min(bandwidth, requests x request / latency) x k
 *   of the shared store of R:     V x share x max(n / R, k / min(host's, requests x request /
 *                                 latency))
 *   of cores that decode d each:  k / (cores x d) seconds for a sample,
 * and the longest of these is what a sample takes.
 * @return TY_EINVAL: figures out of range; data that no level has room for
 */
ty_status ty_input_rate(const ty_input_question *question, ty_input_outlook *out,
                        ty_error *error) TY_MUST_CHECK;

#endif
