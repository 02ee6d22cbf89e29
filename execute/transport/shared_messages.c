/* Messages through the segments of shared_memory.c: from the sender's memory into slots, from slots
 * to the receiver's memory. */
#include "shared_state.h"

#include <string.h>

enum { RELEASES_PER_RING = 8 }; /* wakes a sender that waits for slots only after several */

/* ---- Lists of requests, oldest first ----------------------------------------------------- */

static void list_append(shared_request **list, shared_request *added)
{
    while (*list != NULL)
        list = &(*list)->next;
    added->next = NULL;
    *list = added;
}

static bool list_remove(shared_request **list, shared_request *removed)
{
    for (; *list != NULL; list = &(*list)->next) {
        if (*list == removed) {
            *list = removed->next;
            removed->next = NULL;
            return true;
        }
    }
    return false;
}

static shared_request *list_find(shared_request *list, uint32_t tag)
{
    while (list != NULL && (list->tag != tag || list->is_bad))
        list = list->next;
    return list;
}

static void request_free(shared_request *request)
{
    if (request != NULL)
        ty_free(request->kept);
    ty_free(request);
}

/* ---- Sending ----------------------------------------------------------------------------- */

/* Takes the first free slot, the most likely to be in a cache. @return SLOTS: none */
static uint32_t slot_take(shared_box *box, uint64_t bytes)
{
    for (uint32_t slot = bytes <= SMALL_BYTES ? 0 : SMALL_SLOTS; slot < SLOTS; slot++) {
        if (atomic_load(&box->is_taken[slot]) == 0) {
            atomic_store_explicit(&box->is_taken[slot], 1, memory_order_relaxed);
            return slot;
        }
    }
    return SLOTS;
}

/* Copies a fragment of the message and announces it. @return false: no slot is free */
static bool fragment_send(ty_shared_memory *memory, shared_request *send)
{
    shared_box *box = &memory->segments[memory->own]->boxes[send->inbox];
    shared_ring *ring = shared_ring_of(memory->segments[send->member], memory->own, send->inbox);
    const uint32_t put = atomic_load_explicit(&ring->put, memory_order_relaxed);
    const uint64_t left = send->bytes - send->moved;
    const uint64_t bytes = left < LARGE_BYTES ? left : LARGE_BYTES;
    const uint32_t slot = slot_take(box, bytes);

    if (slot == SLOTS)
        return false;
    if (bytes > 0)
        memcpy(shared_slot(box, slot), send->from + send->moved, bytes);
    ring->fragments[put % RING_LENGTH] = (shared_fragment){send->tag, slot, send->bytes, bytes};
    atomic_store_explicit(&ring->put, put + 1, memory_order_release);
    send->moved += bytes;
    send->is_over = send->moved == send->bytes;
    return true;
}

static void member_sends_advance(ty_shared_memory *memory, uint32_t index, uint32_t member)
{
    inbox_state *inbox = &memory->inboxes[index];
    channel *to = &inbox->channels[member];
    bool is_announced = false;

    while (to->sends != NULL && fragment_send(memory, to->sends)) {
        is_announced = true;
        if (to->sends->is_over) {
            list_remove(&to->sends, to->sends);
            inbox->waiting_count--;
        }
    }
    if (is_announced)
        shared_bell_ring(&memory->segments[member]->boxes[index].bell);
}

static void all_sends_advance(ty_shared_memory *memory, uint32_t index)
{
    for (uint32_t m = 0; m < memory->member_count && memory->inboxes[index].waiting_count > 0; m++)
        member_sends_advance(memory, index, m);
}

/* A sender without slots sets `is_starved` before it tries once more, and a receiver frees a slot
 * before it reads `is_starved`. So one of the two notices the other. The sender rings members that
 * leave its messages in slots until a receive is posted. */
static void sends_advance(ty_shared_memory *memory, uint32_t index)
{
    inbox_state *inbox = &memory->inboxes[index];
    _Atomic uint32_t *is_starved = &memory->segments[memory->own]->boxes[index].bell.is_starved;

    all_sends_advance(memory, index);
    if (inbox->waiting_count > 0 && atomic_load(is_starved) == 0) {
        atomic_store(is_starved, 1);
        all_sends_advance(memory, index);
        for (uint32_t m = 0; m < memory->member_count && inbox->waiting_count > 0; m++)
            shared_bell_ring(&memory->segments[m]->boxes[index].bell);
    }
    if (inbox->waiting_count == 0 && atomic_load_explicit(is_starved, memory_order_relaxed) != 0)
        atomic_store(is_starved, 0);
}

/* ---- Receiving --------------------------------------------------------------------------- */

static void place(shared_request *receive, const char *from, uint64_t bytes)
{
    if (receive->add != NULL)
        receive->add(receive->to + receive->placed, from, bytes / receive->element_bytes);
    else if (bytes > 0)
        memcpy(receive->to + receive->placed, from, bytes);
    receive->placed += bytes;
}

/* Places data that arrived before the receive was posted. */
static void kept_place(shared_request *receive)
{
    if (receive->is_asked && !receive->is_bad && receive->placed < receive->moved)
        place(receive, receive->kept + receive->placed, receive->moved - receive->placed);
}

static void size_check(shared_request *receive)
{
    receive->is_bad =
        receive->is_bad || (receive->is_asked && receive->found_bytes != receive->bytes);
}

static ty_status fragment_take(shared_request *message, const shared_fragment *fragment,
                               const char *from, bool is_turn, ty_error *error)
{
    const bool is_direct =
        message->is_asked && (message->add == NULL || is_turn) && message->placed == message->moved;

    message->found_bytes = fragment->message_bytes;
    size_check(message);
    if (!message->is_bad && is_direct) {
        place(message, from, fragment->bytes);
    } else if (!message->is_bad && fragment->bytes > 0) {
        if (message->kept == NULL)
            message->kept = ty_alloc(message->found_bytes, 1);
        if (message->kept == NULL)
            return ty_fail(error, TY_ENOMEM, "out of memory for a message of %llu bytes",
                           (unsigned long long)message->found_bytes);
        memcpy(message->kept + message->moved, from, fragment->bytes);
    }
    message->moved += fragment->bytes;
    message->is_over = message->moved == message->found_bytes;
    return TY_OK;
}

/* Whether a fragment for `tested` is in the ring after one without a posted receive. */
static bool is_behind(const shared_ring *ring, uint32_t taken, uint32_t put,
                      const shared_request *tested)
{
    while (taken != put && ring->fragments[taken % RING_LENGTH].tag != tested->tag)
        taken++;
    return taken != put;
}

/* The message of the ring's next fragment, if it can be placed; else NULL, and the fragment stays
 * in its slot. */
static shared_request *message_of(channel *from, uint32_t tag, const shared_request *tested)
{
    shared_request *found =
        from->arriving != NULL ? from->arriving : list_find(from->receives, tag);

    if (found == NULL || found == tested || found->is_bad)
        return found;
    return found->is_asked && found->add == NULL ? found : NULL;
}

/* The same message, in a buffer until a receive is posted or its turn comes. */
static shared_request *message_keep(channel *from, uint32_t member, uint32_t inbox, uint32_t tag)
{
    shared_request *found =
        from->arriving != NULL ? from->arriving : list_find(from->receives, tag);

    if (found != NULL)
        return found;
    found = ty_alloc(1, sizeof *found);
    if (found == NULL)
        return NULL;
    *found =
        (shared_request){.path = TY_REQUEST_SHARED, .member = member, .inbox = inbox, .tag = tag};
    list_append(&from->early, found);
    return found;
}

static void message_advance(channel *from, shared_request *message)
{
    list_remove(&from->receives, message);
    from->arriving = message->is_over ? NULL : message;
    if (message->is_over && message->is_bad && !message->is_asked) { /* canceled */
        list_remove(&from->early, message);
        request_free(message);
    }
}

static void slot_release(shared_box *box, uint32_t slot, uint32_t *released)
{
    atomic_store(&box->is_taken[slot], 0);
    if (++*released % RELEASES_PER_RING == 0 && atomic_load(&box->bell.is_starved) != 0)
        shared_bell_ring(&box->bell);
}

/* Takes fragments out of a member's ring. Those without a posted receive stay in their slots,
 * unless the tested receive waits for later ones, or their sender for slots. `tested`: NULL or a
 * receive.
 */
static ty_status ring_drain(ty_shared_memory *memory, uint32_t index, uint32_t member,
                            const shared_request *tested, ty_error *error)
{
    channel *from = &memory->inboxes[index].channels[member];
    shared_box *box = &memory->segments[member]->boxes[index];
    shared_ring *ring = shared_ring_of(memory->segments[memory->own], member, index);
    uint32_t taken = atomic_load_explicit(&ring->taken, memory_order_relaxed), put, released = 0;
    ty_status status = TY_OK;

    while (status == TY_OK && (tested == NULL || !tested->is_over) &&
           taken != (put = atomic_load_explicit(&ring->put, memory_order_acquire))) {
        const shared_fragment fragment = ring->fragments[taken % RING_LENGTH];
        shared_request *message = message_of(from, fragment.tag, tested);

        if (message == NULL) {
            if (atomic_load(&box->bell.is_starved) == 0 &&
                (tested == NULL || tested->member != member ||
                 !is_behind(ring, taken, put, tested)))
                break;
            message = message_keep(from, member, index, fragment.tag);
        }
        TY_TRY(ty_check_memory(message != NULL, error));
        status = fragment_take(message, &fragment, shared_slot(box, fragment.slot),
                               message == tested, error);
        message_advance(from, message);
        atomic_store_explicit(&ring->taken, ++taken, memory_order_release);
        slot_release(box, fragment.slot, &released);
    }
    if (released > 0 && atomic_load(&box->bell.is_starved) != 0)
        shared_bell_ring(&box->bell);
    return status;
}

static ty_status inbox_advance(ty_shared_memory *memory, uint32_t index, shared_request *tested,
                               ty_error *error)
{
    const shared_request *receive = tested->is_send ? NULL : tested;
    ty_status status = TY_OK;

    sends_advance(memory, index);
    kept_place(tested);
    for (uint32_t m = 0; m < memory->member_count && status == TY_OK; m++)
        status = ring_drain(memory, index, m, receive, error);
    return status;
}

/* ---- For the transport ------------------------------------------------------------------- */

static shared_request *request_new(const ty_shared_message *message, bool is_send)
{
    shared_request *made = ty_alloc(1, sizeof *made);

    if (made != NULL)
        *made = (shared_request){.path = TY_REQUEST_SHARED,
                                 .is_send = is_send,
                                 .is_asked = !is_send,
                                 .member = message->member,
                                 .inbox = ty_tag_inbox(message->tag),
                                 .tag = message->tag,
                                 .bytes = message->bytes,
                                 .from = message->from,
                                 .to = message->to,
                                 .add = message->add,
                                 .element_bytes = message->element_bytes};
    return made;
}

ty_status ty_shared_send(ty_shared_memory *memory, const ty_shared_message *message,
                         ty_request **out, ty_error *error)
{
    shared_request *made = request_new(message, true);
    inbox_state *inbox;

    TY_TRY(ty_check_memory(made != NULL, error));
    inbox = &memory->inboxes[made->inbox];
    pthread_mutex_lock(&inbox->lock);
    list_append(&inbox->channels[made->member].sends, made);
    inbox->waiting_count++;
    sends_advance(memory, made->inbox);
    pthread_mutex_unlock(&inbox->lock);
    *out = (ty_request *)made;
    return TY_OK;
}

/* Adopts a message that has already arrived, in full or in part. */
static shared_request *early_adopt(channel *from, const ty_shared_message *message)
{
    shared_request *found = list_find(from->early, message->tag);

    if (found == NULL)
        return NULL;
    list_remove(&from->early, found);
    found->is_asked = true;
    found->bytes = message->bytes;
    found->to = message->to;
    found->add = message->add;
    found->element_bytes = message->element_bytes;
    size_check(found);
    if (found->add == NULL)
        kept_place(found);
    return found;
}

ty_status ty_shared_receive(ty_shared_memory *memory, const ty_shared_message *message,
                            ty_request **out, ty_error *error)
{
    inbox_state *inbox = &memory->inboxes[ty_tag_inbox(message->tag)];
    channel *from = &inbox->channels[message->member];
    shared_request *made;

    pthread_mutex_lock(&inbox->lock);
    made = early_adopt(from, message);
    if (made == NULL && (made = request_new(message, false)) != NULL)
        list_append(&from->receives, made);
    pthread_mutex_unlock(&inbox->lock);
    TY_TRY(ty_check_memory(made != NULL, error));
    *out = (ty_request *)made;
    return TY_OK;
}

static ty_status outcome(ty_shared_memory *memory, const shared_request *own, ty_error *error)
{
    uint32_t lost;

    if (own->is_over && own->is_bad)
        return ty_fail(error, TY_EBACKEND,
                       "found a message of %llu bytes from local rank %u (tag %u), expected %llu",
                       (unsigned long long)own->found_bytes, own->member, own->tag,
                       (unsigned long long)own->bytes);
    if (own->is_over)
        return TY_OK;
    shared_members_check(memory); /* a waiting thread may never sleep at a bell */
    lost = atomic_load(&memory->lost);
    if (lost != 0)
        return ty_fail(error, TY_EBACKEND, "the process of local rank %u is gone", lost - 1);
    return TY_OK;
}

ty_status ty_shared_test(ty_shared_memory *memory, ty_request *request, bool *is_done,
                         ty_error *error)
{
    shared_request *own = (shared_request *)request;
    pthread_mutex_t *lock = &memory->inboxes[own->inbox].lock;
    ty_status status = TY_OK;

    pthread_mutex_lock(lock);
    if (own->is_over)
        kept_place(own);
    else
        status = inbox_advance(memory, own->inbox, own, error);
    if (status == TY_OK)
        status = outcome(memory, own, error);
    *is_done = own->is_over;
    pthread_mutex_unlock(lock);
    if (status != TY_OK)
        ty_shared_cancel(memory, request);
    else if (*is_done)
        request_free(own);
    return status;
}

void ty_shared_cancel(ty_shared_memory *memory, ty_request *request)
{
    shared_request *own = (shared_request *)request;
    inbox_state *inbox;
    channel *with;

    if (own == NULL)
        return;
    inbox = &memory->inboxes[own->inbox];
    with = &inbox->channels[own->member];
    pthread_mutex_lock(&inbox->lock);
    if (own->is_send && list_remove(&with->sends, own))
        inbox->waiting_count--;
    list_remove(&with->receives, own);
    if (with->arriving == own) { /* later fragments are dropped */
        own->is_asked = false;
        own->is_bad = true;
        list_append(&with->early, own);
        own = NULL;
    }
    pthread_mutex_unlock(&inbox->lock);
    request_free(own);
}
