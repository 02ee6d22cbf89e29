/**
 * @file transport.h
 * A communication backend: what moves bytes between ranks. One struct of functions and one file per
 * backend ("mpi" between processes, "local" between threads of one process). Internal to execute/.
 *
 * Ranks here are processes: with tensor parallelism one for each rank (ty_plan_rank_count). Two
 * threads may use a transport at once, each for messages of its own: while a program runs the
 * communication thread, and the compute thread for what ranks exchange inside a pass. Messages
 * between two ranks with equal tags arrive in order. Waiting sleeps rather than spins: ranks share
 * cores with others. Where a transport can, messages ring a bell that ends the sleep.
 */
#ifndef TY_EXECUTE_TRANSPORT_H
#define TY_EXECUTE_TRANSPORT_H

#include "ty_core.h"

typedef struct ty_transport ty_transport;
typedef struct ty_request
    ty_request; /* a message on its way; freed by the test that finds it done */

/** Adds `count` elements of `source` to those of `target`. */
typedef void (*ty_add)(void *target, const void *source, uint64_t count);

struct ty_transport {
    uint32_t rank, size;
    uint32_t local_rank; /* among the ranks of its host, which are numbered from 0 */
    bool is_broken; /* this rank failed alone: closing ends all ranks instead of waiting for them */
    void *state;
    /** Starts a message; the buffer stays untouched until it is done. */
    ty_status (*send)(ty_transport *transport, uint32_t to, uint32_t tag, const void *buffer,
                      uint64_t bytes, ty_request **out, ty_error *error);
    ty_status (*receive)(ty_transport *transport, uint32_t from, uint32_t tag, void *buffer,
                         uint64_t bytes, ty_request **out, ty_error *error);
    /** Whether `receive_sum` may be called for messages of this rank; NULL: of none. */
    bool (*sums)(const ty_transport *transport, uint32_t from);
    /** As receive, but elements are added to those in the buffer, while the request is tested: so
     * several may be under way, and the order of tests is the order of sums. */
    ty_status (*receive_sum)(ty_transport *transport, uint32_t from, uint32_t tag, void *buffer,
                             uint64_t bytes, ty_add add, uint64_t element_bytes, ty_request **out,
                             ty_error *error);
    /** Never blocks. On failure the request is freed too. */
    ty_status (*test)(ty_transport *transport, ty_request *request, bool *is_done, ty_error *error);
    /** Gives a message up, after a failure; its buffer may be freed. */
    void (*cancel)(ty_transport *transport, ty_request *request);
    /** Waits for the other ranks, or ends them when this one is broken. Frees the transport. */
    void (*close)(ty_transport *transport);

    bool shares_memory; /* with other ranks of its host */
    bool is_unproven;   /* ranks of several hosts that have no secret of their job (job_secret.h) */

    /* Bells, one for each inbox; NULL: there are none. Whatever may let a request of this rank go
     * on rings, if the other rank is on this host; `rings_always` says that all are. What comes
     * from other hosts rings where its sockets do (socket_bell.h). */
    bool rings_always;
    /** How often it has rung: to be asked before looking, and handed to the sleep after it. */
    uint32_t (*bell)(ty_transport *transport, uint32_t inbox);
    /** Returns at once if it has rung since, else when it does; at the latest when the time is over
     * or, now and then, before that. Sockets end it only after `quiet_ns`. */
    void (*sleep)(ty_transport *transport, uint32_t inbox, uint32_t seen, long quiet_ns,
                  long longest_ns);
    /** How long one may sleep because messages of other hosts most likely ring; NULL: they do not.
     */
    long (*told_ns)(const ty_transport *transport, uint32_t inbox);
    /** Rings the own bell: by another thread of this rank. */
    void (*wake)(ty_transport *transport, uint32_t inbox);
};

/** Tags are below this. */
#define TY_TAG_LIMIT (UINT32_C(1) << 30)
/** Messages that the compute thread waits for have tags from here on, and below twice that: they
 * have an inbox of their own, so that each thread is woken for its own messages alone. */
#define TY_TAG_OF_PASSES (UINT32_C(1) << 27)
enum { TY_INBOXES = 2 };
/** 1 for messages inside passes, 0 for all others. */
static inline uint32_t ty_tag_inbox(uint32_t tag)
{
    return tag >= TY_TAG_OF_PASSES && tag < 2 * TY_TAG_OF_PASSES;
}

/** MPI_COMM_WORLD, of all ranks that were started together; one per process. Between the ranks of a
 * host messages go through shared memory (shared_memory.h) if all of them have it and the
 * environment variable TRAINYARD_LINK does not say "mpi"; "shared" fails where they have not. With
 * a secret of the job (job_secret.h) all ranks prove to each other to have it, or it fails: then
 * MPI is not finalized, and the launcher ends the job. */
ty_status ty_transport_mpi(ty_transport **out, ty_error *error) TY_MUST_CHECK;
/** Whether messages inside a host go through shared memory, where they can; they do at first. For
 * comparisons: all ranks call it alike, while no message is under way. */
void ty_transport_mpi_share(ty_transport *transport, bool is_sharing);
/** `size` transports that reach each other, for as many threads. @param out [size] */
ty_status ty_transport_local(uint32_t size, ty_transport **out, ty_error *error) TY_MUST_CHECK;

/**
 * How long to sleep while messages are under way: not at all a few times, then 5 to 50
 * microseconds. Zero it when something moved.
 */
typedef struct ty_backoff {
    uint32_t rounds;
} ty_backoff;
/** Nanoseconds to sleep this time; 0: look again at once. */
long ty_backoff_next(ty_backoff *backoff);
void ty_backoff_wait(ty_backoff *backoff);
/** The same, but the bell ends it, too. @param seen what it said before the look that found nothing
 * (ty_transport_bell) @param is_long sleep until it rings, where that tells of every message */
void ty_backoff_rest(ty_backoff *backoff, ty_transport *transport, uint32_t inbox, uint32_t seen,
                     bool is_long);
/** The bell's count; 0 without bells. */
uint32_t ty_transport_bell(ty_transport *transport, uint32_t inbox);
/** How long to sleep at the bell where one would sleep `delay_ns` without: as long, or longer. */
long ty_transport_told_ns(const ty_transport *transport, uint32_t inbox, long delay_ns);

/* Whole messages, for set-up and results; they sleep until done. */
ty_status ty_transport_send(ty_transport *transport, uint32_t to, uint32_t tag, const void *buffer,
                            uint64_t bytes, ty_error *error) TY_MUST_CHECK;
ty_status ty_transport_receive(ty_transport *transport, uint32_t from, uint32_t tag, void *buffer,
                               uint64_t bytes, ty_error *error) TY_MUST_CHECK;

typedef enum ty_element {
    TY_ELEMENT_FLOAT,
    TY_ELEMENT_LARGEST_FLOAT, /* "sums" are the largest of the floats */
    TY_ELEMENT_HALF,
    TY_ELEMENT_BFLOAT,
    TY_ELEMENT_DOUBLE,
    TY_ELEMENT_BYTE, /* cannot be summed */
    TY_ELEMENT_COUNT
} ty_element;
uint64_t ty_element_bytes(ty_element element);

/**
 * One collective as a state machine over point-to-point messages, so that the communication thread
 * can advance several things at once: all-reduce (sum) by any algorithm, ring reduce-scatter and
 * all-gather, all-to-all in rounds. The algorithm is exactly the one the plan names and the cost
 * model prices. All members get the same bits.
 *
 * All-reduce by `automatic` is the ring. By `parameter-server` and `block-manager` everybody sends
 * everybody its share of the sum, and then each its sum to everybody; the two are the same here,
 * where no task is launched. By `hierarchical` each host sums into shares, hosts sum those in a
 * ring, and each host gathers them again; hosts with unequal numbers of members make it a ring of
 * all.
 *
 * With servers of its own (`parts`) an all-reduce by `parameter-server` is a member's side of what
 * server.h does: it sends each server its parts, from all of them in turn, and takes their sums.
 *
 * Shares: member p of n has, of `count` elements, those from p count / n to (p + 1) count / n
 * (ty_share_start). A reduce-scatter leaves each member with the sum of its share, and something
 * between summands and sums elsewhere.
 */
typedef struct ty_collective ty_collective;
typedef struct ty_collective_options {
    ty_collective_kind kind;
    ty_algorithm algorithm;  /* of an all-reduce; the others have one each */
    const uint32_t *members; /* ranks, ascending, this one included; NULL: all ranks */
    const uint32_t *hosts;   /* hierarchical: [member_count], equal for members of one host; needed
                                until the start returns; NULL: all on one */
    uint32_t member_count;
    /* parameter-server: what servers have of `count` elements, and the rank of server 0, the others
     * following; needed until the start returns. NULL: members serve. */
    const ty_server_part *parts;
    uint32_t part_count, server_count, first_server;
    void *data; /* in place: [count] for all-reduce and reduce-scatter, [members][count] for
                   all-gather with this member's part filled in, and for all-to-all, where part j
                   goes to member j and what member j sent ends up; untouched by others until done
                 */
    uint64_t count;
    bool is_of_shares; /* all-gather: data is [count], and a member's part is its share */
    /* All-to-all of unequal parts: elements for, and from, each member, [member_count], needed
     * until done. Parts lie one behind the other, by member; `data` stays as it is, what comes is
     * put into `received`, and `count` does not count. NULL: equal parts. */
    const uint64_t *sent_counts, *received_counts;
    void *received;
    ty_element element;
    uint32_t tag; /* equal on all members and unused by other messages under way */
} ty_collective_options;

ty_status ty_collective_start(ty_transport *transport, const ty_collective_options *options,
                              ty_collective **out, ty_error *error) TY_MUST_CHECK;
/**
 * Advances as far as messages allow; frees the collective when `is_done`.
 * @param is_moved [out] whether anything happened: if not, waiting a little is in order
 */
ty_status ty_collective_test(ty_collective *collective, bool *is_done, bool *is_moved,
                             ty_error *error) TY_MUST_CHECK;
/** Gives it up, after a failure; NULL is ignored. */
void ty_collective_cancel(ty_collective *collective);
/** Start to end, sleeping while messages are under way. */
ty_status ty_collective_run(ty_transport *transport, const ty_collective_options *options,
                            ty_error *error) TY_MUST_CHECK;

/** Returns when all ranks are here. */
ty_status ty_transport_barrier(ty_transport *transport, ty_error *error) TY_MUST_CHECK;

/**
 * What all ranks make of a step that any of them may have failed: TY_OK if it went well everywhere,
 * else the failure of the lowest rank that failed, with its message, on every rank.
 */
ty_status ty_transport_agree(ty_transport *transport, ty_status status,
                             ty_error *error) TY_MUST_CHECK;

#endif
