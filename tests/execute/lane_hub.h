/* Lanes as threads of this process that exchange through memory, on either backend. */
#ifndef TY_TEST_EXECUTE_LANE_HUB_H
#define TY_TEST_EXECUTE_LANE_HUB_H

#include "device.h"

#include <pthread.h>

enum { MOST_LANES = 8 };

typedef struct lane_hub {
    pthread_barrier_t barrier;
    const ty_plan *plan;          /* says how many lanes there are of which kind */
    const void *data[MOST_LANES]; /* what each brought, on the host */
    const ty_lane_exchange *exchanges[MOST_LANES];
    const ty_device_backend *backend;
    ty_stage_device *devices[MOST_LANES]; /* by who opened them */
} lane_hub;

void lane_hub_open(lane_hub *hub, const ty_device_backend *backend, const ty_plan *plan);
/** And the devices. */
void lane_hub_close(lane_hub *hub);
/** Which lane of a rank this is, as its device is told; the caller adds the exchange. */
ty_lane_group lane_hub_group(const lane_hub *hub, uint32_t lane);
/** Bytes that a lane brings to an exchange, and has behind it. */
uint64_t lane_hub_bytes(const lane_hub *hub, const ty_lane_exchange *exchange);
/** By all lanes at once. Every one makes the same sums in the same order, of what all brought.
 * @param result [out] [lane_hub_bytes] */
void lane_hub_exchange(lane_hub *hub, uint32_t lane, const ty_lane_exchange *exchange,
                       const void *brought, void *result);
/** The tokens that a lane has of whole sequences, of its samples: the c-th part from the front and
 * the c-th from the end. @return how many */
uint64_t lane_hub_tokens(const lane_hub *hub, uint32_t lane, uint32_t samples, const int32_t *whole,
                         int32_t *part);
/** A layer's weights as one device has them, from those of the tensor lanes of a context lane.
 * @return to be freed by ty_free; NULL: the device could not be read */
float *lane_hub_weights(const lane_hub *hub, uint32_t context, uint32_t layer, uint64_t *count);
/** Its gradients, summed over the lanes that have those of other tokens. */
float *lane_hub_gradients(const lane_hub *hub, uint32_t layer, uint64_t *count);

#endif
