/* The tables that core's readers follow, as JSON: what docs/schemas.py makes the parts of schemas
 * of that follow from them. */
#include "cluster.h"
#include "ty_core.h"

#include <stdio.h>

typedef const char *(*namer)(int);

static const char *schedule(int i)
{
    return ty_schedule_name((ty_schedule)i);
}
static const char *recompute(int i)
{
    return ty_recompute_name((ty_recompute)i);
}
static const char *compression(int i)
{
    return ty_compression_name((ty_compression_kind)i);
}
static const char *collective(int i)
{
    return ty_collective_name((ty_collective_kind)i);
}
static const char *precision(int i)
{
    return ty_precision_name((ty_precision)i);
}
static const char *provenance(int i)
{
    return ty_provenance_name((ty_provenance)i);
}
static const char *attention(int i)
{
    return ty_stack_attention_name((ty_stack_attention)i);
}
static const char *memory(int i)
{
    return ty_stack_memory_name((ty_stack_memory)i);
}
static const char *vertex(int i)
{
    return ty_vertex_kind_name((ty_vertex_kind)i);
}

static const struct {
    const char *key;
    namer name;
    int count;
} lists[] = {
    {"schedule", schedule, TY_SCHEDULE_COUNT},
    {"recompute", recompute, TY_RECOMPUTE_COUNT},
    {"compression", compression, TY_COMPRESSION_COUNT},
    {"collective", collective, TY_COLLECTIVE_COUNT},
    {"precision", precision, TY_PRECISION_COUNT},
    {"provenance", provenance, TY_DATASHEET + 1},
    {"stack_attention", attention, TY_STACK_ATTENTION_COUNT},
    {"stack_memory", memory, TY_STACK_MEMORY_COUNT},
    {"vertex", vertex, TY_VERTEX_KIND_COUNT},
};

int main(void)
{
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    const ty_stack_constant *constant;
    const cluster_figure *figure;

    ty_json_open(&w, NULL, '{');
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++) {
        ty_json_open_flat(&w, lists[l].key, '[');
        for (int i = 0; i < lists[l].count; i++)
            ty_json_put_string(&w, NULL, lists[l].name(i));
        ty_json_close(&w, ']');
    }
    ty_json_put_uint(&w, "stack_constants_of_devices", TY_STACK_DEVICE_CONSTANTS);
    ty_json_open(&w, "stack_constants", '[');
    for (uint32_t i = 0; (constant = ty_stack_constant_at(i)) != NULL; i++) {
        ty_json_open_flat(&w, NULL, '{');
        ty_json_put_string(&w, "key", constant->key);
        ty_json_put_number(&w, "minimum", constant->minimum);
        ty_json_put_number(&w, "maximum", constant->maximum);
        ty_json_put_bool(&w, "may_be_of_device", constant->may_be_of_device);
        ty_json_close(&w, '}');
    }
    ty_json_close(&w, ']');
    ty_json_open(&w, "device_figures", '[');
    for (uint32_t i = 0; (figure = ty_cluster_figure_at(i)) != NULL; i++) {
        ty_json_open_flat(&w, NULL, '{');
        ty_json_put_string(&w, "key", figure->key);
        ty_json_put_number(&w, "minimum", figure->minimum);
        ty_json_put_number(&w, "maximum", figure->maximum);
        ty_json_put_bool(&w, "is_optional", figure->is_optional);
        ty_json_close(&w, '}');
    }
    ty_json_close(&w, ']');
    ty_json_open(&w, "storage_figures", '[');
    for (uint32_t i = 0; (figure = ty_storage_figure_at(i)) != NULL; i++) {
        ty_json_open_flat(&w, NULL, '{');
        ty_json_put_string(&w, "key", figure->key);
        ty_json_put_number(&w, "minimum", figure->minimum);
        ty_json_put_number(&w, "maximum", figure->maximum);
        ty_json_put_bool(&w, "is_optional", figure->is_optional);
        ty_json_close(&w, '}');
    }
    ty_json_close(&w, ']');
    ty_json_open(&w, "link_figures", '{');
    ty_json_open_flat(&w, "bandwidth_bytes_per_s", '[');
    ty_json_put_number(&w, NULL, BANDWIDTH_MINIMUM);
    ty_json_put_number(&w, NULL, BANDWIDTH_MAXIMUM);
    ty_json_close(&w, ']');
    ty_json_open_flat(&w, "latency_s", '[');
    ty_json_put_number(&w, NULL, 0);
    ty_json_put_number(&w, NULL, LATENCY_MAXIMUM);
    ty_json_close(&w, ']');
    ty_json_close(&w, '}');
    ty_json_close(&w, '}');
    if (text.failed != TY_OK)
        return 1;
    puts(text.data);
    ty_text_clear(&text);
    return 0;
}
