#include "shared_ranks.h"

#include "shared_memory.h"

enum { MOST = 16 };

static ty_status shared_send(ty_transport *t, uint32_t to, uint32_t tag, const void *buffer,
                             uint64_t bytes, ty_request **out, ty_error *error)
{
    return ty_shared_send(
        t->state, &(ty_shared_message){.member = to, .tag = tag, .from = buffer, .bytes = bytes},
        out, error);
}

static ty_status shared_receive(ty_transport *t, uint32_t from, uint32_t tag, void *buffer,
                                uint64_t bytes, ty_request **out, ty_error *error)
{
    return ty_shared_receive(
        t->state, &(ty_shared_message){.member = from, .tag = tag, .to = buffer, .bytes = bytes},
        out, error);
}

static bool sums_all(const ty_transport *t, uint32_t from)
{
    (void)t, (void)from;
    return true;
}

static ty_status shared_receive_sum(ty_transport *t, uint32_t from, uint32_t tag, void *buffer,
                                    uint64_t bytes, ty_add add, uint64_t element_bytes,
                                    ty_request **out, ty_error *error)
{
    return ty_shared_receive(t->state,
                             &(ty_shared_message){.member = from,
                                                  .tag = tag,
                                                  .to = buffer,
                                                  .bytes = bytes,
                                                  .add = add,
                                                  .element_bytes = element_bytes},
                             out, error);
}

static ty_status shared_test(ty_transport *t, ty_request *request, bool *is_done, ty_error *error)
{
    return ty_shared_test(t->state, request, is_done, error);
}

static void shared_cancel(ty_transport *t, ty_request *request)
{
    ty_shared_cancel(t->state, request);
}

static uint32_t shared_bell(ty_transport *t, uint32_t inbox)
{
    return ty_shared_bell(t->state, inbox);
}

static void shared_sleep(ty_transport *t, uint32_t inbox, uint32_t seen, long quiet_ns,
                         long longest_ns)
{
    (void)quiet_ns;
    ty_shared_sleep(t->state, inbox, seen, longest_ns);
}

static void shared_wake(ty_transport *t, uint32_t inbox)
{
    ty_shared_wake(t->state, inbox);
}

static void shared_close(ty_transport *t)
{
    ty_shared_memory_close(t->state);
    ty_free(t);
}

static ty_transport transport_of(ty_shared_memory *memory, uint32_t rank, uint32_t size)
{
    return (ty_transport){.rank = rank,
                          .size = size,
                          .local_rank = rank,
                          .state = memory,
                          .send = shared_send,
                          .receive = shared_receive,
                          .sums = sums_all,
                          .receive_sum = shared_receive_sum,
                          .test = shared_test,
                          .cancel = shared_cancel,
                          .close = shared_close,
                          .rings_always = true,
                          .bell = shared_bell,
                          .sleep = shared_sleep,
                          .wake = shared_wake};
}

ty_status shared_ranks_open(uint32_t size, ty_transport **out, ty_error *error)
{
    ty_shared_address addresses[MOST];
    ty_shared_memory *memory = NULL;
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < size && status == TY_OK; i++) {
        out[i] = ty_alloc(1, sizeof **out);
        status = ty_shared_memory_make(size, i, &memory, &addresses[i], error);
        if (status == TY_OK)
            *out[i] = transport_of(memory, i, size);
    }
    for (uint32_t i = 0; i < size && status == TY_OK; i++)
        status = ty_shared_memory_join(out[i]->state, addresses, error);
    for (uint32_t i = 0; i < size && status == TY_OK; i++)
        ty_shared_memory_seal(out[i]->state);
    return status;
}
