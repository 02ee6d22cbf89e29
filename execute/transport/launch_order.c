/* Stamps of operations that all devices launch in one order. */
#include "launch_order.h"

#include <stddef.h>

void ty_launch_order_open(ty_launch_order *order)
{
    *order = (ty_launch_order){.first = NULL};
    pthread_mutex_init(&order->lock, NULL);
}

void ty_launch_order_close(ty_launch_order *order)
{
    pthread_mutex_destroy(&order->lock);
}

void ty_launch_propose(ty_launch_order *order, ty_launch *launch)
{
    pthread_mutex_lock(&order->lock);
    launch->stamp = ++order->clock;
    launch->is_decided = false;
    launch->next = order->first;
    order->first = launch;
    pthread_mutex_unlock(&order->lock);
}

void ty_launch_decide(ty_launch_order *order, ty_launch *launch, uint64_t stamp)
{
    pthread_mutex_lock(&order->lock);
    launch->stamp = stamp;
    launch->is_decided = true;
    if (order->clock < stamp)
        order->clock = stamp;
    pthread_mutex_unlock(&order->lock);
}

/* The operation with the least stamp: an undecided stamp can only grow. */
static const ty_launch *least(const ty_launch_order *order)
{
    const ty_launch *found = order->first;

    for (const ty_launch *other = found; other != NULL; other = other->next)
        if (other->stamp < found->stamp ||
            (other->stamp == found->stamp && other->name < found->name))
            found = other;
    return found;
}

bool ty_launch_is_next(ty_launch_order *order, const ty_launch *launch)
{
    bool is_next;

    pthread_mutex_lock(&order->lock);
    is_next = launch->is_decided && least(order) == launch;
    pthread_mutex_unlock(&order->lock);
    return is_next;
}

bool ty_launch_leave(ty_launch_order *order, const ty_launch *launch)
{
    const ty_launch *next;
    bool is_freed = false;

    pthread_mutex_lock(&order->lock);
    next = least(order);
    for (ty_launch **place = &order->first; *place != NULL; place = &(*place)->next) {
        if (*place != launch)
            continue;
        *place = launch->next;
        is_freed = next == launch && order->first != NULL && least(order)->is_decided;
        break;
    }
    pthread_mutex_unlock(&order->lock);
    return is_freed;
}
