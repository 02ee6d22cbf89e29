/* Copies of clusters with changed figures of devices, links and storage. */
#include "cluster.h"

#include <string.h>

static bool is_of(const ty_cluster_edit *edit, const char *name)
{
    return edit->name == NULL || strcmp(edit->name, name) == 0;
}

static double edited(const ty_cluster_edit *edit, double figure)
{
    return edit->is_factor ? figure * edit->value : edit->value;
}

/* @return whether the edit is of this type */
static bool edit_device_type(const ty_cluster_edit *edit, ty_device_type *type)
{
    const bool is_of_peaks = strcmp(edit->field, "peak_") == 0;
    const json_field *figure;
    bool is_used = false;

    if (strcmp(edit->field, "memory_bytes") == 0) {
        const double usable_share = (double)type->usable_memory_bytes / (double)type->memory_bytes;
        type->memory_bytes = (uint64_t)edited(edit, (double)type->memory_bytes);
        type->usable_memory_bytes = (uint64_t)(usable_share * (double)type->memory_bytes);
        return true;
    }
    for (uint32_t i = 0; (figure = ty_cluster_figure_at(i)) != NULL; i++) {
        double *value = (double *)(void *)((char *)type + figure->at);
        if (is_of_peaks ? strncmp(figure->key, edit->field, strlen(edit->field)) != 0
                        : strcmp(figure->key, edit->field) != 0)
            continue;
        if (!is_of_peaks || *value > 0)
            *value = edited(edit, *value);
        is_used = true;
    }
    return is_used;
}

static bool edit_link_type(const ty_cluster_edit *edit, link_type *type)
{
    double *figure = strcmp(edit->field, "bandwidth_bytes_per_s") == 0
                         ? &type->bandwidth_bytes_per_s
                     : strcmp(edit->field, "latency_s") == 0 ? &type->latency_s
                                                             : NULL;
    if (figure != NULL)
        *figure = edited(edit, *figure);
    return figure != NULL;
}

/* Figures are those of files; a factor leaves an absent limit unlimited. */
static bool edit_storage(const ty_cluster_edit *edit, ty_storage *storage)
{
    const json_field *figure;

    for (uint32_t i = 0; (figure = ty_storage_figure_at(i)) != NULL; i++)
        if (strcmp(figure->key, edit->field) == 0) {
            double *value = (double *)(void *)((char *)storage + figure->at);
            *value = edited(edit, *value);
            return true;
        }
    return false;
}

/* Storage without a name is the last level. */
static bool edit_part(const ty_cluster_edit *edit, ty_cluster *made)
{
    bool is_used = false;

    if (edit->part == TY_PART_DEVICES)
        for (uint32_t i = 0; i < made->device_type_count; i++)
            if (is_of(edit, made->device_types[i].name))
                is_used |= edit_device_type(edit, &made->device_types[i]);
    if (edit->part == TY_PART_LINKS)
        for (uint32_t i = 0; i < made->link_type_count; i++)
            if (is_of(edit, made->link_types[i].name))
                is_used |= edit_link_type(edit, &made->link_types[i]);
    if (edit->part == TY_PART_STORAGE)
        for (uint32_t i = 0; i < made->storage_count; i++)
            if (edit->name == NULL ? i + 1 == made->storage_count
                                   : is_of(edit, made->storage[i].name))
                is_used |= edit_storage(edit, &made->storage[i]);
    return is_used;
}

/* Reports an edit without effect, with the existing names of its kind. */
static ty_status fail_edit(const ty_cluster_edit *edit, const ty_cluster *cluster, ty_error *error)
{
    static const char *const parts[] = {
        [TY_PART_DEVICES] = "device", [TY_PART_LINKS] = "link type", [TY_PART_STORAGE] = "storage"};
    const uint32_t count = edit->part == TY_PART_DEVICES ? cluster->device_type_count
                           : edit->part == TY_PART_LINKS ? cluster->link_type_count
                                                         : cluster->storage_count;
    ty_text known = {0};
    ty_status status;

    for (uint32_t i = 0; i < count && i < 12; i++)
        ty_text_addf(&known, "%s%s", i == 0 ? "" : ", ",
                     edit->part == TY_PART_DEVICES ? cluster->device_types[i].name
                     : edit->part == TY_PART_LINKS ? cluster->link_types[i].name
                                                   : cluster->storage[i].name);
    ty_text_add(&known, count == 0 ? "none" : count > 12 ? ", ..." : "");
    status =
        ty_fail(error, TY_EINVAL, "cluster \"%s\" has no %s \"%s\" with a %s; it has %s",
                cluster->name, parts[edit->part], edit->name != NULL ? edit->name : "of any name",
                edit->field, known.data != NULL ? known.data : "others");
    ty_text_clear(&known);
    return status;
}

ty_status ty_cluster_edited(const ty_cluster *cluster, const ty_cluster_edit *edits, uint32_t count,
                            ty_cluster **out, ty_error *error)
{
    const size_t devices = cluster->device_type_count, links = cluster->link_type_count;
    ty_cluster *made = ty_alloc(1, sizeof *made);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(made != NULL, error));
    memcpy(made, cluster, sizeof *made);
    atomic_init(&made->owners, 1);
    atomic_init(&made->digest_state, NO_DIGEST);
    made->origin = ty_cluster_share(cluster);
    made->device_types = ty_alloc(devices, sizeof *made->device_types);
    made->link_types = ty_alloc(links, sizeof *made->link_types);
    made->links = ty_alloc(cluster->link_count, sizeof *made->links);
    TY_CHECK(ty_check_memory(made->device_types != NULL && made->link_types != NULL &&
                                 made->links != NULL,
                             error),
             status, done);
    memcpy(made->device_types, cluster->device_types, devices * sizeof *made->device_types);
    if (links > 0)
        memcpy(made->link_types, cluster->link_types, links * sizeof *made->link_types);
    for (uint32_t e = 0; e < count; e++)
        if (!edit_part(&edits[e], made)) {
            status = fail_edit(&edits[e], cluster, error);
            goto done;
        }
    for (uint32_t l = 0; l < cluster->link_count; l++) {
        const link_type *type = &made->link_types[cluster->link_kinds[l]];
        made->links[l] = cluster->links[l];
        made->links[l].bandwidth_bytes_per_s = type->bandwidth_bytes_per_s * cluster->link_lanes[l];
        made->links[l].latency_s = type->latency_s;
    }
    TY_CHECK(ty_cluster_check_figures(made, "cluster", error), status, done);
    *out = made;
    made = NULL;
done:
    ty_cluster_free(made);
    return status;
}
