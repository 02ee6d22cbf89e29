/* Ranks as threads of this process that exchange through memory, on either backend. */
#ifndef TY_TEST_EXECUTE_RANK_HUB_H
#define TY_TEST_EXECUTE_RANK_HUB_H

#include "device.h"

#include <pthread.h>

enum { MOST_RANKS = 8 };

typedef struct rank_hub {
    pthread_barrier_t barrier;
    const ty_plan *plan;          /* says how many ranks there are of which kind */
    const void *data[MOST_RANKS]; /* what each brought, on the host */
    const ty_parallel_exchange *exchanges[MOST_RANKS];
    const ty_device_backend *backend;
    ty_stage_device *devices[MOST_RANKS]; /* by who opened them */
} rank_hub;

void rank_hub_open(rank_hub *hub, const ty_device_backend *backend, const ty_plan *plan);
/** And the devices. */
void rank_hub_close(rank_hub *hub);
/** Which rank of a rank this is, as its device is told; the caller adds the exchange. */
ty_parallel_group rank_hub_group(const rank_hub *hub, uint32_t rank);
/** Bytes that a rank brings to an exchange, and has behind it. */
uint64_t rank_hub_bytes(const rank_hub *hub, const ty_parallel_exchange *exchange);
/** By all ranks at once. Every one makes the same sums in the same order, of what all brought.
 * @param result [out] [rank_hub_bytes] */
void rank_hub_exchange(rank_hub *hub, uint32_t rank, const ty_parallel_exchange *exchange,
                       const void *brought, void *result);
/** The tokens that a rank has of whole sequences, of its samples: the c-th part from the front and
 * the c-th from the end. @return how many */
uint64_t rank_hub_tokens(const rank_hub *hub, uint32_t rank, uint32_t samples, const int32_t *whole,
                         int32_t *part);
/** A layer's weights as one device has them, from those of the tensor-parallel ranks of a
 * context-parallel rank.
 * @return to be freed by ty_free; NULL: the device could not be read */
float *rank_hub_weights(const rank_hub *hub, uint32_t context, uint32_t layer, uint64_t *count);
/** Its gradients, summed over the ranks that have those of other tokens. */
float *rank_hub_gradients(const rank_hub *hub, uint32_t layer, uint64_t *count);

#endif
