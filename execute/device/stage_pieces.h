/**
 * @file stage_pieces.h
 * The order of a tensor's shards in a message between ranks. Internal to execute/.
 */
#ifndef TY_EXECUTE_STAGE_PIECES_H
#define TY_EXECUTE_STAGE_PIECES_H

#include <stdint.h>

/** A tensor [batch][n * runs][run], in a sample's order, as [n][batch][runs][run] for n ranks: the
 * shard of each rank is one piece. With two runs a rank has one from the first half and one from
 * the second, as context-parallel ranks have tokens. */
typedef struct stage_pieces {
    uint64_t batch, ranks, runs, run;
} stage_pieces;

#endif
