/* Slurm's topology/block: man topology.conf (23.11 and later), BlockName, Nodes, BlockSizes. */
#include "export_slurm.h"

#include "ty_base.h"

#include <string.h>

/* A device's switch that other hosts share; NO_INDEX: none. */
static uint32_t domain_of(const ty_cluster *c, uint32_t vertex)
{
    for (uint32_t p = c->port_starts[vertex]; p < c->port_starts[vertex + 1]; p++) {
        uint32_t at = c->ports[p].vertex;
        if (c->vertices[at].kind != TY_VERTEX_DEVICE_SWITCH)
            continue;
        for (uint32_t q = c->port_starts[at]; q < c->port_starts[at + 1]; q++) {
            const cluster_vertex *other = &c->vertices[c->ports[q].vertex];
            if (other->kind == TY_VERTEX_DEVICE && other->host != c->vertices[vertex].host)
                return at;
        }
    }
    return NO_INDEX;
}

/* "nvl-1/nvswitch" is block nvl-1. */
static ty_status write_block(const ty_cluster *c, const uint32_t *domains, uint32_t domain,
                             uint32_t *size, ty_text *text, ty_error *error)
{
    static const char ending[] = "/nvswitch";
    const char *name = c->vertices[domain].name;
    size_t length = strlen(name), end = sizeof ending - 1;
    char *own = ty_strndup(
        name, length > end && strcmp(name + length - end, ending) == 0 ? length - end : length);

    TY_TRY(ty_check_memory(own != NULL, error));
    ty_text_add(text, "BlockName=");
    write_slurm_name(text, own);
    ty_free(own);
    *size = 0;
    for (uint32_t h = 0; h < c->host_count; h++) {
        if (domains[h] != domain)
            continue;
        ty_text_add(text, (*size)++ == 0 ? " Nodes=" : ",");
        write_slurm_name(text, c->vertices[c->host_vertices[h]].name);
    }
    ty_text_add(text, "\n");
    return TY_OK;
}

static ty_status write_blocks(const ty_cluster *c, const uint32_t *domains, ty_text *text,
                              ty_error *error)
{
    uint32_t least = UINT32_MAX, size;

    ty_text_add(text, "# topology.conf of ");
    ty_quote_visible(text, c->name, "");
    ty_text_add(text, "\n");
    for (uint32_t h = 0; h < c->host_count; h++) {
        bool is_first = true;
        for (uint32_t k = 0; k < h && is_first; k++)
            is_first = domains[k] != domains[h];
        if (!is_first)
            continue;
        TY_TRY(write_block(c, domains, domains[h], &size, text, error));
        least = size < least ? size : least;
    }
    /* The scheduler's unit, the least size of a block; larger blocks are allowed. */
    ty_text_addf(text, "BlockSizes=%u\n", least);
    return ty_text_check(text, error);
}

ty_status export_blocks(const ty_cluster *c, ty_text *text, bool *has_blocks, ty_error *error)
{
    uint32_t *domains = ty_alloc(c->host_count, sizeof *domains), shared = 0;
    ty_text written = {0};
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(domains != NULL, error));
    for (uint32_t h = 0; h < c->host_count; h++)
        domains[h] = NO_INDEX;
    for (uint32_t d = c->device_count; d-- > 0;) /* any device of a host will do: they agree */
        domains[ty_cluster_device_host(c, d)] = domain_of(c, c->device_vertices[d]);
    for (uint32_t h = 0; h < c->host_count; h++)
        shared += domains[h] != NO_INDEX;
    *has_blocks = shared > 0;
    if (shared == 0)
        goto cleanup;
    if (shared < c->host_count) {
        status = ty_fail(error, TY_EUNSUPPORTED,
                         "cluster %.100s: found %u of %u hosts in NVLink domains, expected all or "
                         "none: a Slurm topology is of blocks or a tree",
                         c->name, shared, c->host_count);
        goto cleanup;
    }
    TY_CHECK(write_blocks(c, domains, &written, error), status, cleanup);
    ty_text_append(text, written.data, written.length);
    status = ty_text_check(text, error);

cleanup:
    ty_text_clear(&written);
    ty_free(domains);
    return status;
}

/* Keeps letters, digits, and characters that are no list syntax. */
void write_slurm_name(ty_text *text, const char *name)
{
    for (; *name != '\0'; name++) {
        bool is_plain = (*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') ||
                        (*name >= '0' && *name <= '9') || strchr("-_.", *name) != NULL;
        ty_text_append(text, is_plain ? name : "_", 1);
    }
}
