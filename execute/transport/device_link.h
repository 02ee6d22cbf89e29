/**
 * @file device_link.h
 * Communication of device memory between ranks: through host memory over any transport
 * (device_link_host.c), or from device to device (transport_nccl.c). Internal to execute/.
 *
 * One thread of its rank at a time uses a link, as with transports. Data passed to a link is
 * complete in device memory, and so is the data of a finished request.
 */
#ifndef TY_EXECUTE_DEVICE_LINK_H
#define TY_EXECUTE_DEVICE_LINK_H

#include "device.h"
#include "transport.h"

#include <stdlib.h>
#include <string.h>

typedef struct ty_transfer {
    uint32_t peer; /* rank */
    uint32_t tag;  /* as of a message of a transport */
    ty_direction direction;
    /* Index of the message among those of this direction between this pair, from 0, in the programs
     * of both. NCCL has no tags, so messages are matched by their order. */
    uint64_t order;
    void *buffer; /* device memory */
    uint64_t bytes;
} ty_transfer;

struct ty_device_link {
    const char *name; /* "host", "nccl" */
    void *state;
    /* Kernels on the devices wait for those of other ranks. While messages are in flight, the
     * thread that uses the link must not allocate or free device memory, which would wait for them.
     */
    bool is_direct;
    bool rings; /* ty_link_options.ring is called whenever a message or collective has ended */
    ty_status (*send)(ty_device_link *link, const ty_transfer *transfer, ty_request **out,
                      ty_error *error);
    ty_status (*receive)(ty_device_link *link, const ty_transfer *transfer, ty_request **out,
                         ty_error *error);
    /** A collective on device memory, in place like ty_collective_start. */
    ty_status (*exchange)(ty_device_link *link, const ty_collective_options *options,
                          ty_request **out, ty_error *error);
    /** Adds a collective to the graph that the stage is recording, instead of launching it. The
     * stage owns the recording until the link is canceled or closed, which destroys it. NULL:
     * nothing can be recorded. */
    ty_status (*record)(ty_device_link *link, ty_stage_device *stage,
                        const ty_collective_options *options, ty_error *error);
    /** Calls `run`, which launches a recorded graph on the stage's stream, once all ranks of the
     * stage replica are ready for it; done when the graph has ended. Only for links with
     * `is_inside_replica`; NULL like `record`. */
    ty_status (*launch)(ty_device_link *link, ty_stage_device *stage, ty_parallel_run *run,
                        void *argument, ty_request **out, ty_error *error);
    /** Never blocks; frees the request when it is done or failed. */
    ty_status (*test)(ty_device_link *link, ty_request *request, bool *is_done, ty_error *error);
    /** Advances all requests in flight, whatever this rank waits for. The thread that uses the link
     * calls it whenever it polls; it fails if a peer is gone. NULL: not needed. */
    ty_status (*advance)(ty_device_link *link, bool *is_moved, ty_error *error);
    /** After a failure. A direct link cannot be used from then on, and none of its kernels is left:
     * memory may be freed once all requests are canceled. */
    void (*cancel)(ty_device_link *link, ty_request *request);
    void (*close)(ty_device_link *link);
};

struct ty_link_options {
    const ty_plan *plan;
    const ty_program *program;
    const ty_device_backend *backend;
    ty_stage_device *stage;
    ty_transport *transport; /* for the host's part: rendezvous, or everything */
    /* Only for collectives of the stage replica inside passes: a second link, of the thread of the
     * passes, in addition to that of the other thread. */
    bool is_inside_replica;
    /* Total bytes of the largest all-to-all with equal counts; 1 if all have unequal ones; 0: there
     * is none. */
    uint64_t all_to_all_bytes;
    void (*ring)(void *context); /* see ty_device_link.rings; by any thread. May be NULL */
    void *context;
};

/** Copies through host memory; works over every transport and for every backend with device memory.
 */
ty_status ty_device_link_host(const ty_link_options *options, ty_device_link **out,
                              ty_error *error) TY_MUST_CHECK;

/**
 * Chooses and opens the link, the same on all ranks, which call it together. The environment
 * variable TRAINYARD_LINK may be "host", "mpi" or "shared" (host memory, over any transport, MPI or
 * shared memory), "nccl" or "auto": NCCL if every rank has a device of its own and the library can
 * be loaded.
 */
ty_status ty_device_link_open(const ty_link_options *options, ty_device_link **out,
                              ty_error *error) TY_MUST_CHECK;

/**
 * The lowest rank that uses the same device as this one; this rank if there is no lower one, or it
 * has no device. Collective.
 */
ty_status ty_device_first_user(ty_transport *transport, const ty_device_identity *own,
                               uint32_t *out, ty_error *error) TY_MUST_CHECK;

/** Whether TRAINYARD_NCCL_SHARED_GPU is 1: ranks on one GPU present themselves as separate hosts.
 */
static inline bool ty_device_link_is_shared(void)
{
    const char *value = getenv("TRAINYARD_NCCL_SHARED_GPU");

    return value != NULL && strcmp(value, "1") == 0;
}

#endif
