/* Chooses the link for device memory from the data of all ranks, so that all choose alike. */
#include "device_link.h"

#include <stdlib.h>
#include <string.h>

enum { PLACE_TAG = 8 };

typedef enum link_choice { LINK_AUTO, LINK_HOST, LINK_NCCL } link_choice;

/* A rank's device and its choice of a link. */
typedef struct rank_place {
    ty_device_identity device;
    bool can_link;
    link_choice choice;
    ty_error reason; /* why not */
} rank_place;

static ty_status choice_read(link_choice *out, ty_error *error)
{
    const char *value = getenv("TRAINYARD_LINK");

    *out = LINK_AUTO;
    if (value == NULL || strcmp(value, "") == 0 || strcmp(value, "auto") == 0)
        return TY_OK;
    if (strcmp(value, "host") == 0 || strcmp(value, "mpi") == 0 || strcmp(value, "shared") == 0)
        *out = LINK_HOST; /* transport_mpi.c chooses over which transport */
    else if (strcmp(value, "nccl") == 0)
        *out = LINK_NCCL;
    else
        return ty_fail(error, TY_EINVAL,
                       "TRAINYARD_LINK: found \"%s\", expected host, mpi, shared, nccl or auto",
                       value);
    return TY_OK;
}

static bool is_same_device(const ty_device_identity *a, const ty_device_identity *b)
{
    static const ty_device_identity none;

    return memcmp(a, b, sizeof *a) == 0 && memcmp(a, &none, sizeof *a) != 0;
}

/* Why the ranks cannot be linked directly, or NULL. */
static const char *obstacle(const rank_place *places, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!places[i].can_link)
            return places[i].reason.message;
        for (uint32_t k = 0; k < i && !ty_device_link_is_shared(); k++) {
            if (is_same_device(&places[i].device, &places[k].device))
                return "two ranks share a GPU, which NCCL refuses (TRAINYARD_NCCL_SHARED_GPU=1 "
                       "lets "
                       "them pose as two hosts)";
        }
    }
    return NULL;
}

static ty_status places_gather(const ty_link_options *options, rank_place *places, ty_error *error)
{
    const ty_device_memory *memory = options->backend->memory;
    ty_transport *transport = options->transport;
    rank_place *own = &places[transport->rank];
    ty_status status = choice_read(&own->choice, error);

    TY_CHECK(ty_transport_agree(transport, status, error), status, done);
    own->device = memory->identity(options->stage);
    own->can_link =
        memory->link_check != NULL && memory->link_check(options->stage, &own->reason) == TY_OK;
    if (memory->link_check == NULL)
        (void)ty_fail(&own->reason, TY_EUNSUPPORTED, "the %s backend has no link of its own",
                      options->backend->name);
    status = ty_collective_run(transport,
                               &(ty_collective_options){.kind = TY_ALL_GATHER,
                                                        .member_count = transport->size,
                                                        .data = places,
                                                        .count = sizeof *places,
                                                        .element = TY_ELEMENT_BYTE,
                                                        .tag = PLACE_TAG},
                               error);
done:
    return status;
}

ty_status ty_device_first_user(ty_transport *transport, const ty_device_identity *own,
                               uint32_t *out, ty_error *error)
{
    ty_device_identity *all = ty_alloc(transport->size, sizeof *all);
    uint32_t found = 0;
    ty_status status;

    TY_TRY(ty_check_memory(all != NULL, error));
    all[transport->rank] = *own;
    TY_CHECK(ty_collective_run(transport,
                               &(ty_collective_options){.kind = TY_ALL_GATHER,
                                                        .member_count = transport->size,
                                                        .data = all,
                                                        .count = sizeof *all,
                                                        .element = TY_ELEMENT_BYTE,
                                                        .tag = PLACE_TAG},
                               error),
             status, cleanup);
    while (found < transport->rank && !is_same_device(&all[found], own))
        found++;
    *out = found;
cleanup:
    ty_free(all);
    return status;
}

ty_status ty_device_link_open(const ty_link_options *options, ty_device_link **out, ty_error *error)
{
    ty_transport *transport = options->transport;
    rank_place *places = ty_alloc(transport->size, sizeof *places);
    const char *reason;
    link_choice choice;
    ty_status status;

    TY_TRY(ty_check_memory(places != NULL, error));
    TY_CHECK(places_gather(options, places, error), status, cleanup);
    choice = places[0].choice; /* rank 0 decides for all */
    reason = obstacle(places, transport->size);
    if (choice == LINK_NCCL && reason != NULL)
        status = ty_fail(error, TY_EUNSUPPORTED, "no NCCL between these ranks: %s", reason);
    else if (choice == LINK_HOST || reason != NULL || transport->size == 1)
        status = ty_device_link_host(options, out, error);
    else
        status = options->backend->memory->link_open(options, out, error);
cleanup:
    ty_free(places);
    return status;
}
