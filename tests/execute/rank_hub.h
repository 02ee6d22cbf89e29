/* Ranks as threads of this process that communicate through memory, on either backend. */
#ifndef TY_TEST_EXECUTE_RANK_HUB_H
#define TY_TEST_EXECUTE_RANK_HUB_H

#include "device.h"

#include <pthread.h>

enum { MOST_RANKS = 8 };

typedef struct rank_hub {
    pthread_barrier_t barrier;
    const ty_plan *plan;          /* defines the TP, CP and EP sizes */
    const void *data[MOST_RANKS]; /* each rank's input, on the host */
    const ty_parallel_exchange *exchanges[MOST_RANKS];
    const ty_device_backend *backend;
    ty_stage_device *devices[MOST_RANKS]; /* of each rank that opened one */
} rank_hub;

void rank_hub_open(rank_hub *hub, const ty_device_backend *backend, const ty_plan *plan);
/** And the devices. */
void rank_hub_close(rank_hub *hub);
/** The parallel group of this rank, as its device receives it. The caller adds the callback. */
ty_parallel_group rank_hub_group(const rank_hub *hub, uint32_t rank);
/** Bytes of a rank's input to a collective, and of its result. */
uint64_t rank_hub_bytes(const rank_hub *hub, const ty_parallel_exchange *exchange);
/** All ranks call it together. Each computes the same sums in the same order from all inputs.
 * @param result [out] [rank_hub_bytes] */
void rank_hub_exchange(rank_hub *hub, uint32_t rank, const ty_parallel_exchange *exchange,
                       const void *brought, void *result);
/** A context-parallel rank's tokens of its unsharded sequences: of 2 CP equal chunks, the c-th from
 * the start and the c-th from the end.
 * @return number of tokens */
uint64_t rank_hub_tokens(const rank_hub *hub, uint32_t rank, uint32_t samples, const int32_t *whole,
                         int32_t *part);
/** A layer's weights as an unsharded device stores them, assembled from the tensor-parallel ranks
 * with context-parallel rank `context`.
 * @return to be freed by ty_free; NULL: the device could not be read */
float *rank_hub_weights(const rank_hub *hub, uint32_t context, uint32_t layer, uint64_t *count);
/** Its gradients, summed over the context-parallel ranks. */
float *rank_hub_gradients(const rank_hub *hub, uint32_t layer, uint64_t *count);

#endif
