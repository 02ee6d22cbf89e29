/**
 * @file launch_order.h
 * One order in which processes launch what keeps their devices waiting for each other. Internal to
 * execute/.
 *
 * A collective's kernel holds its device until those of all members run. Two of them that wait
 * behind one another, on one device this way round and on another that way, wait without end; so do
 * three of them in a ring of three devices. Streams do not keep them apart: a device has few
 * hardware queues, with CUDA_DEVICE_MAX_CONNECTIONS=1 a single one, and what follows a kernel in
 * its stream holds back everything behind it in the queue. Where all devices launch in one order
 * there is always a first one, and that runs.
 *
 * The order is that of stamps, as in Skeen's ordered multicast (Birman and Joseph, "Reliable
 * communication in the presence of failures", 1987): every member proposes a stamp, later than all
 * it knows; the latest of those proposed is the operation's, and a member launches the one with the
 * least stamp, once none could still get a lesser one. Who proposes must be ready for the operation
 * and say no more than that: until all have proposed and the largest was told, others wait.
 *
 * A process has one order, whatever number of links it has and of threads that serve them:
 * functions may be called by several threads at once, for one operation by one.
 */
#ifndef TY_EXECUTE_LAUNCH_ORDER_H
#define TY_EXECUTE_LAUNCH_ORDER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/** An operation, of its owner's memory. While it is in an order it does not move. */
typedef struct ty_launch {
    /* Of two operations with one stamp the lesser goes first: something that all members call it by
     * and nothing else. */
    uint64_t name;
    uint64_t stamp;  /* what this process proposed; once decided, what it is */
    bool is_decided; /* the stamp cannot grow any more */
    struct ty_launch *next;
} ty_launch;

typedef struct ty_launch_order {
    pthread_mutex_t lock;
    uint64_t clock;   /* no stamp that this process knows is later */
    ty_launch *first; /* proposed and not launched, in no order */
} ty_launch_order;

void ty_launch_order_open(ty_launch_order *order);
void ty_launch_order_close(ty_launch_order *order);

/** Takes an operation in; its `name` is given, its stamp is made, and is later than all known. */
void ty_launch_propose(ty_launch_order *order, ty_launch *launch);

/** The stamp it has at last: the latest of what its members proposed, its own among them. */
void ty_launch_decide(ty_launch_order *order, ty_launch *launch, uint64_t stamp);

/** Whether it is to be launched now: it is decided and no other here comes or may come before. */
bool ty_launch_is_next(ty_launch_order *order, const ty_launch *launch);

/** It was launched, or is given up. Returns whether one that is decided was held back and is next
 * now. One that is not in the order is ignored. */
bool ty_launch_leave(ty_launch_order *order, const ty_launch *launch);

#endif
