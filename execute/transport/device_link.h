/**
 * @file device_link.h
 * How device memory travels between ranks: through the host's memory over any transport
 * (device_link_host.c), or from device to device (transport_nccl.c). Internal to execute/.
 *
 * Used by one thread of its rank at a time, as transports are. What is handed over is complete in
 * device memory, and what a finished request leaves is complete there too.
 */
#ifndef TY_EXECUTE_DEVICE_LINK_H
#define TY_EXECUTE_DEVICE_LINK_H

#include "device.h"
#include "transport.h"

#include <stdlib.h>
#include <string.h>

typedef struct ty_transfer {
    uint32_t peer; /* rank */
    uint32_t tag;  /* as of a transport's message */
    ty_direction direction;
    /* The how many-th message of this direction between this pair, from 0 on, by the programs of
     * both. NCCL knows no tags, so messages are matched by their order. */
    uint64_t order;
    void *buffer; /* device memory */
    uint64_t bytes;
} ty_transfer;

struct ty_device_link {
    const char *name; /* "host", "nccl" */
    void *state;
    /* Kernels on the devices wait for those of others: while messages are under way the thread that
     * uses the link allocates and frees no memory of the device, which would wait for them. */
    bool is_direct;
    bool rings; /* ty_link_options.ring is called whenever a message or collective has ended */
    ty_status (*send)(ty_device_link *link, const ty_transfer *transfer, ty_request **out,
                      ty_error *error);
    ty_status (*receive)(ty_device_link *link, const ty_transfer *transfer, ty_request **out,
                         ty_error *error);
    /** A collective on device memory, in place as ty_collective_start has it. */
    ty_status (*exchange)(ty_device_link *link, const ty_collective_options *options,
                          ty_request **out, ty_error *error);
    /** Puts a collective into the graph that the stage is recording, in place of launching it. What
     * was recorded is the stage's, until the link is cancelled or closed, which destroys it. NULL:
     * nothing can be recorded. */
    ty_status (*record)(ty_device_link *link, ty_stage_device *stage,
                        const ty_collective_options *options, ty_error *error);
    /** Calls `run`, which puts a recorded graph on the stage's stream, when all processes that this
     * one exchanges with inside passes have come to the same; done when the graph is over. Of links
     * of ranks; NULL like `record`. */
    ty_status (*launch)(ty_device_link *link, ty_stage_device *stage, ty_parallel_run *run,
                        void *argument, ty_request **out, ty_error *error);
    /** Never blocks; frees the request when it is done or failed. */
    ty_status (*test)(ty_device_link *link, ty_request *request, bool *is_done, ty_error *error);
    /** Serves the others: what has been asked for goes on, whatever this rank waits for. The thread
     * that uses the link calls it whenever it looks for something to do; a peer that is gone fails
     * it. NULL: nobody needs it. */
    ty_status (*advance)(ty_device_link *link, bool *is_moved, ty_error *error);
    /** After a failure; a direct link is of no use from then on, and no kernel of its is left:
     * memory may be freed when all requests are cancelled. */
    void (*cancel)(ty_device_link *link, ty_request *request);
    void (*close)(ty_device_link *link);
};

struct ty_link_options {
    const ty_plan *plan;
    const ty_program *program;
    const ty_device_backend *backend;
    ty_stage_device *stage;
    ty_transport *transport; /* for the host's part: rendezvous, or everything */
    /* For what the ranks of a stage replica exchange inside passes, and nothing else: a link of the
     * thread of the passes, beside that of the other thread. */
    bool is_inside_replica;
    /* Bytes of the largest all-to-all of equal parts that there will be, all together; 1 if all are
     * of unequal ones; 0: there is none. */
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
 * variable TRAINYARD_LINK may say "host", "mpi" or "shared" (the host's memory, over whatever, MPI
 * or shared memory), "nccl" or "auto": NCCL where every rank has a device of its own and the
 * library can be loaded.
 */
ty_status ty_device_link_open(const ty_link_options *options, ty_device_link **out,
                              ty_error *error) TY_MUST_CHECK;

/**
 * The lowest rank that uses the same device as this one; itself, if no lower one does or it has
 * none. Collective.
 */
ty_status ty_device_first_user(ty_transport *transport, const ty_device_identity *own,
                               uint32_t *out, ty_error *error) TY_MUST_CHECK;

/** What TRAINYARD_NCCL_SHARED_GPU=1 asks for: ranks on one GPU that pose as hosts of their own. */
static inline bool ty_device_link_is_shared(void)
{
    const char *value = getenv("TRAINYARD_NCCL_SHARED_GPU");

    return value != NULL && strcmp(value, "1") == 0;
}

#endif
