/**
 * @file transport.h
 * A communication backend sends bytes between ranks. One struct of functions and one file per
 * backend ("mpi" between processes, "local" between threads of one process). Internal to execute/.
 *
 * A job has ty_plan_rank_count ranks, and parameter servers after them. Two threads may use a
 * transport at once, each for messages of its own: while a program runs, the communication thread,
 * and the compute thread for collectives inside a pass. Messages between two ranks with equal tags
 * arrive in order. Waiting sleeps rather than spins: ranks share cores with others. If a transport
 * supports it, messages ring a bell that ends the sleep.
 */
#ifndef TY_EXECUTE_TRANSPORT_H
#define TY_EXECUTE_TRANSPORT_H

#include "ty_core.h"

typedef struct ty_transport ty_transport;
typedef struct ty_request
    ty_request; /* a message in flight; freed by the test that finds it done */

/** Adds `count` elements of `source` to those of `target`. */
typedef void (*ty_add)(void *target, const void *source, uint64_t count);

struct ty_transport {
    uint32_t rank, size;
    uint32_t local_rank; /* among the ranks of its host, from 0 */
    bool is_broken; /* this rank failed alone: closing ends all ranks instead of waiting for them */
    void *state;
    /** Starts a message; the caller must not change the buffer until it is done. */
    ty_status (*send)(ty_transport *transport, uint32_t to, uint32_t tag, const void *buffer,
                      uint64_t bytes, ty_request **out, ty_error *error);
    ty_status (*receive)(ty_transport *transport, uint32_t from, uint32_t tag, void *buffer,
                         uint64_t bytes, ty_request **out, ty_error *error);
    /** Whether `receive_sum` supports messages from this rank; NULL: from none. */
    bool (*sums)(const ty_transport *transport, uint32_t from);
    /** Like receive, but adds elements to those in the buffer, while the request is tested: several
     * may be in flight, and the order of tests is the order of sums. */
    ty_status (*receive_sum)(ty_transport *transport, uint32_t from, uint32_t tag, void *buffer,
                             uint64_t bytes, ty_add add, uint64_t element_bytes, ty_request **out,
                             ty_error *error);
    /** Never blocks. On failure the request is freed too. */
    ty_status (*test)(ty_transport *transport, ty_request *request, bool *is_done, ty_error *error);
    /** Cancels a message, after a failure; its buffer may be freed. */
    void (*cancel)(ty_transport *transport, ty_request *request);
    /** Waits for the other ranks, or ends them when this one is broken. Frees the transport. */
    void (*close)(ty_transport *transport);

    bool shares_memory; /* with other ranks of its host */
    bool is_unproven;   /* ranks are on several hosts without a job secret (job_secret.h) */

    /* Bells, one for each inbox; NULL: there are none. Every event that may advance a request of
     * this rank rings, if the other rank is on this host; `rings_always`: all ranks are. Messages
     * from other hosts ring if their sockets do (socket_bell.h). */
    bool rings_always;
    /** Number of rings: read it before polling, and pass it to the sleep afterwards. */
    uint32_t (*bell)(ty_transport *transport, uint32_t inbox);
    /** Returns at once if the bell has rung since `seen`, else when it rings, or when the time is
     * over; sometimes earlier. Sockets end it only after `quiet_ns`. */
    void (*sleep)(ty_transport *transport, uint32_t inbox, uint32_t seen, long quiet_ns,
                  long longest_ns);
    /** Longest sleep while messages of other hosts most likely ring; NULL: they do not. */
    long (*told_ns)(const ty_transport *transport, uint32_t inbox);
    /** Rings this rank's bell; called by another thread of this rank. */
    void (*wake)(ty_transport *transport, uint32_t inbox);
};

/** Tags are below this. */
#define TY_TAG_LIMIT (UINT32_C(1) << 30)
/** Messages for which the compute thread waits have tags from this to below twice this. They have
 * an inbox of their own, so that each thread is woken only for its own messages. */
#define TY_TAG_OF_PASSES (UINT32_C(1) << 27)
enum { TY_INBOXES = 2 };
/** 1 for messages inside passes, 0 for all others. */
static inline uint32_t ty_tag_inbox(uint32_t tag)
{
    return tag >= TY_TAG_OF_PASSES && tag < 2 * TY_TAG_OF_PASSES;
}

/** MPI_COMM_WORLD, of all ranks started together; one per process. Messages between ranks of a host
 * go through shared memory (shared_memory.h) if all of them have it and the environment variable
 * TRAINYARD_LINK is not "mpi"; "shared" fails if they have not. With a job secret (job_secret.h) it
 * fails unless all ranks prove to each other that they have it. Then MPI is not finalized, and the
 * launcher ends the job. */
ty_status ty_transport_mpi(ty_transport **out, ty_error *error) TY_MUST_CHECK;
/** Whether messages inside a host go through shared memory if possible; they do at first. For
 * comparisons: all ranks call it alike, while no message is in flight. */
void ty_transport_mpi_share(ty_transport *transport, bool is_sharing);
/** `size` connected transports, for as many threads. @param out [size] */
ty_status ty_transport_local(uint32_t size, ty_transport **out, ty_error *error) TY_MUST_CHECK;

/**
 * Sleep between polls while messages are in flight: none a few times, then 5 to 50 microseconds.
 * Zero it when a message advanced.
 */
typedef struct ty_backoff {
    uint32_t rounds;
} ty_backoff;
/** Nanoseconds to sleep this time; 0: poll again at once. */
long ty_backoff_next(ty_backoff *backoff);
void ty_backoff_wait(ty_backoff *backoff);
/** The same, but the bell ends it, too.
 * @param seen its count before the poll that found nothing (ty_transport_bell)
 * @param is_long sleep until it rings, if every message rings */
void ty_backoff_rest(ty_backoff *backoff, ty_transport *transport, uint32_t inbox, uint32_t seen,
                     bool is_long);
/** The bell's count; 0 without bells. */
uint32_t ty_transport_bell(ty_transport *transport, uint32_t inbox);
/** Sleep at the bell, instead of `delay_ns` without one: as long, or longer. */
long ty_transport_told_ns(const ty_transport *transport, uint32_t inbox, long delay_ns);

/* Blocking messages, for set-up and results; they sleep until done. */
ty_status ty_transport_send(ty_transport *transport, uint32_t to, uint32_t tag, const void *buffer,
                            uint64_t bytes, ty_error *error) TY_MUST_CHECK;
ty_status ty_transport_receive(ty_transport *transport, uint32_t from, uint32_t tag, void *buffer,
                               uint64_t bytes, ty_error *error) TY_MUST_CHECK;

typedef enum ty_element {
    TY_ELEMENT_FLOAT,
    TY_ELEMENT_LARGEST_FLOAT, /* reduces floats by maximum */
    TY_ELEMENT_HALF,
    TY_ELEMENT_BFLOAT,
    TY_ELEMENT_DOUBLE,
    TY_ELEMENT_BYTE, /* cannot be summed */
    TY_ELEMENT_COUNT
} ty_element;
uint64_t ty_element_bytes(ty_element element);

/**
 * One collective as a state machine over point-to-point messages, so that the communication thread
 * can advance several operations at once: all-reduce (sum) by any algorithm, ring reduce-scatter
 * and all-gather, all-to-all in rounds. The algorithm is exactly the one that the plan names and
 * the cost model prices. All members get the same bits.
 *
 * All-reduce by `automatic` is the ring. By `parameter-server` and `block-manager` each member
 * sends every other one its shard, sums its own, and sends the sum to all. The two are the same
 * here, because no task is launched. By `hierarchical` each host reduce-scatters, hosts all-reduce
 * the shards in rings, and each host all-gathers them. If hosts have unequal numbers of members, it
 * is one ring of all.
 *
 * With dedicated servers (`parts`) an all-reduce by `parameter-server` is the client's side of
 * server.h: it sends each server its parts, all servers in turn, and receives their sums.
 *
 * Shards: member p of n has, of `count` elements, those from p count / n to (p + 1) count / n
 * (ty_share_start). A reduce-scatter leaves each member with the sum of its shard, and partial sums
 * elsewhere.
 */
typedef struct ty_collective ty_collective;
typedef struct ty_collective_options {
    ty_collective_kind kind;
    ty_algorithm algorithm;  /* of an all-reduce; the others have one each */
    const uint32_t *members; /* ranks, ascending, this one included; NULL: all ranks */
    const uint32_t *hosts;   /* hierarchical: [member_count], equal for members of one host; valid
                                until the start returns; NULL: all on one */
    uint32_t member_count;
    /* parameter-server: the servers' parts of `count` elements, and the rank of server 0, followed
     * by the others; valid until the start returns. NULL: members are the servers. */
    const ty_server_part *parts;
    uint32_t part_count, server_count, first_server;
    void *data; /* in place: [count] for all-reduce and reduce-scatter; [members][count] for
                   all-gather, with this member's part filled in, and for all-to-all, whose part j
                   is sent to member j and replaced by that from member j. The caller must not
                   access it until done */
    uint64_t count;
    bool is_of_shares; /* all-gather: data is [count], and a member's part is its shard */
    /* All-to-all with unequal counts: elements to, and from, each member, [member_count], valid
     * until done. Parts are contiguous, by member; `data` is unchanged, received parts go to
     * `received`, and `count` is ignored. NULL: equal counts. */
    const uint64_t *sent_counts, *received_counts;
    void *received;
    ty_element element;
    uint32_t tag; /* equal on all members and unused by other messages in flight */
} ty_collective_options;

ty_status ty_collective_start(ty_transport *transport, const ty_collective_options *options,
                              ty_collective **out, ty_error *error) TY_MUST_CHECK;
/**
 * Advances as far as messages allow; frees the collective when `is_done`.
 * @param is_moved [out] whether anything advanced: if not, wait a little
 */
ty_status ty_collective_test(ty_collective *collective, bool *is_done, bool *is_moved,
                             ty_error *error) TY_MUST_CHECK;
/** Cancels it, after a failure; NULL is ignored. */
void ty_collective_cancel(ty_collective *collective);
/** Start to end, sleeping while messages are in flight. */
ty_status ty_collective_run(ty_transport *transport, const ty_collective_options *options,
                            ty_error *error) TY_MUST_CHECK;

/** Returns when all ranks have called it. */
ty_status ty_transport_barrier(ty_transport *transport, ty_error *error) TY_MUST_CHECK;

/**
 * Agrees on the result of a step that any rank may have failed: TY_OK on all ranks if it succeeded
 * on all, else the failure of the lowest rank that failed, with its message, on every rank.
 */
ty_status ty_transport_agree(ty_transport *transport, ty_status status,
                             ty_error *error) TY_MUST_CHECK;

#endif
