/* Compressed collectives among members of one process, by copying. */
#ifndef TY_TEST_EXECUTE_CROWD_H
#define TY_TEST_EXECUTE_CROWD_H

#include "codec.h"

/** Bytes of one member's shard; all bytes for an all-reduce. */
uint64_t exchange_part_bytes(const ty_collective_options *exchange);
/** Bytes of a member's input: the shards of all members where shards are exchanged. */
uint64_t exchange_bytes(const ty_collective_options *exchange);
/** Runs the collective on host memory.
 * @param members [count] options of each member's ty_codec_exchange */
void exchange_run(const ty_collective_options *members, uint32_t count);

#endif
