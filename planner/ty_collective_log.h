/**
 * @file ty_collective_log.h
 * Logs of nccl-tests (all_reduce_perf and its like), and what they tell the planner.
 *
 * A row is `size count type [redop] [root]  time algbw busbw error  time algbw busbw error`: bytes,
 * elements, microseconds and GB/s, out of place and in place (nccl-tests doc/PERFORMANCE.md). Both
 * kinds of header are read (an `error` column, or `#wrong` and `root`); lines of other programs
 * between the rows are skipped, rows of size 0 too.
 */
#ifndef TY_COLLECTIVE_LOG_H
#define TY_COLLECTIVE_LOG_H

#include "ty_core.h"
#include "ty_topologies.h"

typedef struct ty_collective_log_row {
    uint64_t size;  /* as printed: of an all-gather the whole result */
    uint64_t bytes; /* what each member puts in */
    double out_of_place_s, in_place_s;
} ty_collective_log_row;

typedef struct ty_collective_log {
    ty_collective_kind kind;
    uint32_t ranks;
    uint32_t hosts; /* 0: the log does not say */
    uint32_t row_count;
    ty_collective_log_row *rows; /* in the order of the log */
} ty_collective_log;

/**
 * Reads a log; "-" is standard input.
 * The collective is that of the program's name in the log, else `kind`, else that of the file's
 * name, else an all-reduce where bus and algorithm bandwidth differ as an all-reduce's do. Ranks
 * are counted in the list of devices, else worked out of the elements or the two bandwidths.
 * @param kind TY_COLLECTIVE_COUNT: not given
 * @return TY_EPARSE with file and line: no rows (with the log's last line, which tends to say why),
 *         a row cut short, wrong results, a tuner's table, a log that does not say what it measured
 */
ty_status ty_collective_log_load(const char *path, ty_collective_kind kind, ty_collective_log **out,
                                 ty_error *error) TY_MUST_CHECK;
/** The same from memory. @param name file name, for messages and for its words */
ty_status ty_collective_log_parse(const char *text, const char *name, ty_collective_kind kind,
                                  ty_collective_log **out, ty_error *error) TY_MUST_CHECK;
void ty_collective_log_free(ty_collective_log *log);

/**
 * Adds a log's rows to a profile as measured collectives of the library's own choice. Of the two
 * times of a row the shorter counts: what disturbs a measurement makes it longer. A size that is
 * already there for as many ranks and hosts is replaced.
 * @param cluster says on how many hosts the ranks were, where the log does not
 * @return TY_EINVAL when the cluster has fewer devices than the log has ranks, or they cannot have
 *         been on as many hosts as the log says
 */
ty_status ty_profile_calibrate(ty_profile *profile, const ty_collective_log *log,
                               const ty_cluster *cluster, ty_error *error) TY_MUST_CHECK;
/** An empty profile of a cluster's devices by their data sheet, to be calibrated.
 *  @param date ISO 8601 */
ty_status ty_profile_of_cluster(const ty_cluster *cluster, const char *date, ty_profile **out,
                                ty_error *error) TY_MUST_CHECK;

#endif
