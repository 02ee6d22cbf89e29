/* The "local" transport: ranks are threads of one process. It is a hub of mailboxes under one lock.
 * A message whose receive is posted is copied into place; another is stored as a copy until its
 * receive is posted, so that a send never waits. Tests can run entire plans without mpirun, and
 * under the thread sanitizer. */
#include "transport.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

typedef struct message {
    struct message *next; /* in the mailbox; NULL once matched */
    uint32_t peer, tag;   /* peer: the sender, in the receiver's mailbox */
    uint64_t bytes;
    void *buffer; /* of a receive: the caller's; of a stored send: the copy after it */
    bool is_done, is_bad;
    uint64_t found_bytes; /* of a message that did not fit */
} message;

typedef struct bell {
    pthread_cond_t rung;
    uint32_t count;
} bell;

typedef struct mailbox {
    message *receives, *sends; /* both oldest first; at most one list holds a given (peer, tag) */
    bell bells[TY_INBOXES];
} mailbox;

typedef struct hub {
    pthread_mutex_t lock;
    uint32_t size, open_count, made; /* made: mailboxes created so far */
    bool is_broken;
    mailbox *mailboxes; /* [size] by receiver */
} hub;

/* Removes the oldest message of (peer, tag) from a list. */
static message *list_take(message **list, uint32_t peer, uint32_t tag)
{
    for (; *list != NULL; list = &(*list)->next) {
        message *found = *list;
        if (found->peer == peer && found->tag == tag) {
            *list = found->next;
            found->next = NULL;
            return found;
        }
    }
    return NULL;
}

static void list_append(message **list, message *added)
{
    while (*list != NULL)
        list = &(*list)->next;
    *list = added;
}

static void list_remove(message **list, const message *removed)
{
    for (; *list != NULL; list = &(*list)->next) {
        if (*list == removed) {
            *list = removed->next;
            return;
        }
    }
}

static void list_free(message *list)
{
    while (list != NULL) {
        message *next = list->next;
        ty_free(list);
        list = next;
    }
}

static void deliver(message *receive, const void *buffer, uint64_t bytes)
{
    receive->is_done = true;
    receive->is_bad = receive->bytes != bytes;
    receive->found_bytes = bytes;
    if (!receive->is_bad && bytes > 0)
        memcpy(receive->buffer, buffer, bytes);
}

static void ring(bell *own)
{
    own->count++;
    (void)pthread_cond_broadcast(&own->rung);
}

/* A message, followed by room for its copy if it is a stored send. */
static message *message_new(uint32_t peer, uint32_t tag, void *buffer, uint64_t bytes,
                            uint64_t copied)
{
    message *made = ty_alloc(1, sizeof *made + copied);

    if (made != NULL) {
        made->peer = peer;
        made->tag = tag;
        made->bytes = bytes;
        made->buffer = copied > 0 ? (void *)(made + 1) : buffer;
    }
    return made;
}

static ty_status local_send(ty_transport *transport, uint32_t to, uint32_t tag, const void *buffer,
                            uint64_t bytes, ty_request **out, ty_error *error)
{
    hub *shared = transport->state;
    mailbox *box = &shared->mailboxes[to];
    message *own = message_new(to, tag, NULL, bytes, 0), *receive, *kept;
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(own != NULL, error));
    own->is_done = true; /* copied before this function returns */
    pthread_mutex_lock(&shared->lock);
    receive = list_take(&box->receives, transport->rank, tag);
    if (receive != NULL) {
        deliver(receive, buffer, bytes);
        ring(&box->bells[ty_tag_inbox(tag)]);
    } else if ((kept = message_new(transport->rank, tag, NULL, bytes, bytes)) != NULL) {
        if (bytes > 0)
            memcpy(kept->buffer, buffer, bytes);
        list_append(&box->sends, kept);
    } else {
        status = ty_fail(error, TY_ENOMEM, "out of memory for a message of %llu bytes",
                         (unsigned long long)bytes);
    }
    pthread_mutex_unlock(&shared->lock);
    if (status != TY_OK) {
        ty_free(own);
        return status;
    }
    *out = (ty_request *)own;
    return TY_OK;
}

static ty_status local_receive(ty_transport *transport, uint32_t from, uint32_t tag, void *buffer,
                               uint64_t bytes, ty_request **out, ty_error *error)
{
    hub *shared = transport->state;
    mailbox *box = &shared->mailboxes[transport->rank];
    message *own = message_new(from, tag, buffer, bytes, 0), *kept;

    TY_TRY(ty_check_memory(own != NULL, error));
    pthread_mutex_lock(&shared->lock);
    kept = list_take(&box->sends, from, tag);
    if (kept != NULL)
        deliver(own, kept->buffer, kept->bytes);
    else
        list_append(&box->receives, own);
    pthread_mutex_unlock(&shared->lock);
    ty_free(kept);
    *out = (ty_request *)own;
    return TY_OK;
}

static void local_cancel(ty_transport *transport, ty_request *request)
{
    hub *shared = transport->state;
    message *own = (message *)request;

    if (own == NULL)
        return;
    pthread_mutex_lock(&shared->lock);
    if (!own->is_done)
        list_remove(&shared->mailboxes[transport->rank].receives, own);
    pthread_mutex_unlock(&shared->lock);
    ty_free(own);
}

static ty_status local_test(ty_transport *transport, ty_request *request, bool *is_done,
                            ty_error *error)
{
    hub *shared = transport->state;
    message *own = (message *)request;
    ty_status status = TY_OK;
    bool is_broken;

    pthread_mutex_lock(&shared->lock);
    *is_done = own->is_done;
    is_broken = shared->is_broken;
    pthread_mutex_unlock(&shared->lock);
    if (!*is_done && is_broken)
        status = ty_fail(error, TY_EBACKEND, "another rank failed");
    else if (*is_done && own->is_bad)
        status = ty_fail(error, TY_EBACKEND,
                         "rank %u got %llu bytes from rank %u (tag %u), expected %llu",
                         transport->rank, (unsigned long long)own->found_bytes, own->peer, own->tag,
                         (unsigned long long)own->bytes);
    if (status != TY_OK)
        local_cancel(transport, request);
    else if (*is_done)
        ty_free(own);
    return status;
}

/* ---- Bells ---- */

static uint32_t local_bell(ty_transport *transport, uint32_t inbox)
{
    hub *shared = transport->state;
    uint32_t count;

    pthread_mutex_lock(&shared->lock);
    count = shared->mailboxes[transport->rank].bells[inbox].count;
    pthread_mutex_unlock(&shared->lock);
    return count;
}

static void local_sleep(ty_transport *transport, uint32_t inbox, uint32_t seen, long quiet_ns,
                        long longest_ns)
{
    const long second_ns = 1000000000;
    hub *shared = transport->state;
    bell *own = &shared->mailboxes[transport->rank].bells[inbox];
    struct timespec until;

    (void)quiet_ns;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += longest_ns / second_ns;
    until.tv_nsec += longest_ns % second_ns;
    if (until.tv_nsec >= second_ns) {
        until.tv_sec++;
        until.tv_nsec -= second_ns;
    }
    pthread_mutex_lock(&shared->lock);
    while (own->count == seen && !shared->is_broken &&
           pthread_cond_timedwait(&own->rung, &shared->lock, &until) != ETIMEDOUT)
        ;
    pthread_mutex_unlock(&shared->lock);
}

static void local_wake(ty_transport *transport, uint32_t inbox)
{
    hub *shared = transport->state;

    pthread_mutex_lock(&shared->lock);
    ring(&shared->mailboxes[transport->rank].bells[inbox]);
    pthread_mutex_unlock(&shared->lock);
}

static ty_status bells_make(mailbox *box)
{
    pthread_condattr_t by_clock;
    uint32_t made = 0;

    if (pthread_condattr_init(&by_clock) != 0)
        return TY_ENOMEM;
    (void)pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    while (made < TY_INBOXES && pthread_cond_init(&box->bells[made].rung, &by_clock) == 0)
        made++;
    (void)pthread_condattr_destroy(&by_clock);
    if (made == TY_INBOXES)
        return TY_OK;
    while (made > 0)
        (void)pthread_cond_destroy(&box->bells[--made].rung);
    return TY_ENOMEM;
}

/* ---- All ranks ---- */

static void hub_free(hub *shared)
{
    if (shared == NULL)
        return;
    for (uint32_t i = 0; i < shared->made; i++) {
        list_free(shared->mailboxes[i].receives);
        list_free(shared->mailboxes[i].sends);
        for (uint32_t inbox = 0; inbox < TY_INBOXES; inbox++)
            (void)pthread_cond_destroy(&shared->mailboxes[i].bells[inbox].rung);
    }
    ty_free(shared->mailboxes);
    pthread_mutex_destroy(&shared->lock);
    ty_free(shared);
}

static void local_close(ty_transport *transport)
{
    hub *shared = transport->state;
    bool is_last;

    pthread_mutex_lock(&shared->lock);
    is_last = --shared->open_count == 0;
    shared->is_broken = shared->is_broken || transport->is_broken;
    for (uint32_t i = 0; transport->is_broken && i < shared->size; i++)
        for (uint32_t inbox = 0; inbox < TY_INBOXES; inbox++)
            ring(&shared->mailboxes[i].bells[inbox]);
    pthread_mutex_unlock(&shared->lock);
    if (is_last)
        hub_free(shared);
    ty_free(transport);
}

ty_status ty_transport_local(uint32_t size, ty_transport **out, ty_error *error)
{
    hub *shared = ty_alloc(1, sizeof *shared);

    TY_TRY(ty_check_memory(shared != NULL, error));
    shared->mailboxes = ty_alloc(size, sizeof *shared->mailboxes);
    shared->size = size;
    if (shared->mailboxes == NULL || pthread_mutex_init(&shared->lock, NULL) != 0) {
        ty_free(shared->mailboxes);
        ty_free(shared);
        return ty_fail(error, TY_ENOMEM, "out of memory for %u local ranks", size);
    }
    for (uint32_t i = 0; i < size; i++) {
        out[i] = ty_alloc(1, sizeof **out);
        if (out[i] != NULL && bells_make(&shared->mailboxes[i]) == TY_OK)
            shared->made++;
        if (shared->made <= i) {
            ty_free(out[i]);
            while (i > 0)
                ty_free(out[--i]);
            hub_free(shared);
            return ty_fail(error, TY_ENOMEM, "out of memory for %u local ranks", size);
        }
        *out[i] = (ty_transport){.rank = i,
                                 .size = size,
                                 .local_rank = i,
                                 .state = shared,
                                 .send = local_send,
                                 .receive = local_receive,
                                 .test = local_test,
                                 .cancel = local_cancel,
                                 .close = local_close,
                                 .rings_always = true,
                                 .bell = local_bell,
                                 .sleep = local_sleep,
                                 .wake = local_wake};
    }
    shared->open_count = size;
    return TY_OK;
}
