/**
 * @file launch_order.h
 * One common order in which ranks launch collectives, whose kernels make devices wait for each
 * other. Internal to execute/.
 *
 * A collective's kernel occupies its device until those of all ranks run. Two kernels that are
 * queued in opposite orders on two devices deadlock; so can three in a ring of three devices.
 * Streams do not prevent this: a device has few hardware queues, only one with
 * CUDA_DEVICE_MAX_CONNECTIONS=1, and work after a kernel in its stream blocks all later work in the
 * queue. If all devices launch in one order, there is always a first kernel, and that runs.
 *
 * The order is that of stamps, as in Skeen's ordered multicast (Birman and Joseph, "Reliable
 * communication in the presence of failures", 1987). Every rank proposes a stamp, later than all it
 * knows. The latest proposal becomes the operation's stamp. A rank launches the operation with the
 * least stamp, once no other can get a lesser one. A rank must propose only when it is ready for
 * the operation: other operations wait until all have proposed and the decision has arrived.
 *
 * A process has one order for all its links and threads. Several threads may call the functions at
 * once, but only one of them for a given operation.
 */
#ifndef TY_EXECUTE_LAUNCH_ORDER_H
#define TY_EXECUTE_LAUNCH_ORDER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/** An operation, in its owner's memory. Its address must not change while it is in an order. */
typedef struct ty_launch {
    /* Breaks ties: among equal stamps the lesser name goes first. Unique, and the same on all ranks
     * of the operation. */
    uint64_t name;
    uint64_t stamp;  /* proposed by this rank; once decided, the final one */
    bool is_decided; /* the stamp is final */
    struct ty_launch *next;
} ty_launch;

typedef struct ty_launch_order {
    pthread_mutex_t lock;
    uint64_t clock;   /* the latest stamp that this process knows */
    ty_launch *first; /* operations proposed and not launched, unordered */
} ty_launch_order;

void ty_launch_order_open(ty_launch_order *order);
void ty_launch_order_close(ty_launch_order *order);

/** Adds an operation, whose `name` is set, and gives it a stamp later than all known ones. */
void ty_launch_propose(ty_launch_order *order, ty_launch *launch);

/** Sets the final stamp: the latest proposal of all its ranks, this one included. */
void ty_launch_decide(ty_launch_order *order, ty_launch *launch, uint64_t stamp);

/** Whether to launch it now: it is decided, and no other operation here is or may become earlier.
 */
bool ty_launch_is_next(ty_launch_order *order, const ty_launch *launch);

/** Removes an operation that was launched or canceled. Returns whether a decided one was waiting
 * for it and is next now. Ignores an operation that is not in the order. */
bool ty_launch_leave(ty_launch_order *order, const ty_launch *launch);

#endif
