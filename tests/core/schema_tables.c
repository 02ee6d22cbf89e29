/* The tables that readers use, as JSON. docs/schemas.py generates the parts of schemas that depend
 * on them. */
#include "checkpoint_parts.h"
#include "ty_core.h"
#include "ty_json.h"
#include "ty_phases.h"
#include "workload_layers.h"

#include <stdio.h>
#include <string.h>

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

static const struct {
    const char *key;
    namer name;
    int count;
} lists[] = {
    {"schedule", schedule, TY_SCHEDULE_COUNT},
    {"recompute", recompute, TY_RECOMPUTE_COUNT},
    {"compression", compression, TY_COMPRESSION_COUNT},
    {"collective", collective, TY_COLLECTIVE_COUNT},
    {"provenance", provenance, TY_DATASHEET + 1},
    {"stack_attention", attention, TY_STACK_ATTENTION_COUNT},
    {"stack_memory", memory, TY_STACK_MEMORY_COUNT},
};

/* ---- Records, as JSON schemas of objects ----------------------------------------------------- */

static void put_limits(const json_field *f, bool is_whole, ty_json_writer *w)
{
    ty_json_put_string(w, "type", is_whole ? "integer" : "number");
    if (f->minimum > 0 && f->minimum < 2 * DBL_MIN)
        ty_json_put_number(w, "exclusiveMinimum", 0);
    else if (f->minimum > -DBL_MAX)
        ty_json_put_number(w, "minimum", f->minimum);
    if (f->maximum < (double)FLT_MAX)
        ty_json_put_number(w, "maximum", f->maximum);
}

static void put_record(const json_record *record, ty_json_writer *w);

static void put_array_limits(double least, double most, ty_json_writer *w)
{
    ty_json_put_string(w, "type", "array");
    if (least > 0)
        ty_json_put_number(w, "minItems", least);
    if (most > 0 && most < UINT32_MAX)
        ty_json_put_number(w, "maxItems", most);
}

static void put_field(const json_field *f, ty_json_writer *w)
{
    ty_json_open(w, f->key, '{');
    if (f->about != NULL)
        ty_json_put_string(w, "description", f->about);
    if (f->schema != NULL) {
        ty_json_put_string(w, "$ref", f->schema);
        ty_json_close(w, '}');
        return;
    }
    switch (f->kind) {
    case JSON_NUMBER:
        put_limits(f, false, w);
        break;
    case JSON_UINT32:
    case JSON_UINT64:
        put_limits(f, true, w);
        break;
    case JSON_BOOL:
        ty_json_put_string(w, "type", "boolean");
        break;
    case JSON_TEXT:
    case JSON_WORD:
    case JSON_CHARS:
        ty_json_put_string(w, "type", "string");
        ty_json_put_uint(w, "minLength", 1);
        if (f->kind == JSON_CHARS)
            ty_json_put_number(w, "maxLength", f->maximum);
        break;
    case JSON_DIGEST:
        ty_json_put_string(w, "type", "string");
        ty_json_put_string(w, "pattern", "^[0-9a-f]{64}$");
        break;
    case JSON_DIGESTS:
        put_array_limits(f->least_count, f->most_count, w);
        ty_json_open(w, "items", '{');
        ty_json_put_string(w, "type", "string");
        ty_json_put_string(w, "pattern", "^[0-9a-f]{64}$");
        ty_json_close(w, '}');
        break;
    case JSON_NAME:
        ty_json_open(w, "enum", '[');
        for (int i = 0; i < f->name_count; i++)
            ty_json_put_string(w, NULL, f->name(i));
        ty_json_close(w, ']');
        break;
    case JSON_NUMBERS:
    case JSON_UINTS:
        put_array_limits(f->least_count, f->most_count, w);
        ty_json_open(w, "items", '{');
        put_limits(f, f->kind == JSON_UINTS, w);
        ty_json_close(w, '}');
        break;
    case JSON_STRUCT:
        put_record(f->of, w);
        break;
    case JSON_ROWS:
    case JSON_HERE:
        put_array_limits(f->minimum, f->maximum, w);
        ty_json_open(w, "items", '{');
        put_record(f->of, w);
        ty_json_close(w, '}');
        break;
    case JSON_TUPLES:
        put_array_limits(f->minimum, f->maximum, w);
        ty_json_open(w, "items", '{');
        put_array_limits(f->of->field_count, f->of->field_count, w);
        ty_json_open(w, "prefixItems", '[');
        for (uint32_t i = 0; i < f->of->field_count; i++) {
            ty_json_open(w, NULL, '{');
            ty_json_put_string(w, "description", f->of->fields[i].key);
            put_limits(&f->of->fields[i], f->of->fields[i].kind == JSON_UINT32, w);
            ty_json_close(w, '}');
        }
        ty_json_close(w, ']');
        ty_json_close(w, '}');
        break;
    case JSON_MEMBERS:
    case JSON_OTHER:
        break;
    }
    ty_json_close(w, '}');
}

/* If the type of a member varies between records, the first one is used. */
static bool was_before(const json_record *record, uint32_t field)
{
    for (uint32_t i = 0; i < field; i++)
        if (record->fields[i].key != NULL &&
            strcmp(record->fields[i].key, record->fields[field].key) == 0)
            return true;
    return false;
}

static void put_properties(const json_record *record, ty_json_writer *w)
{
    for (uint32_t i = 0; i < record->field_count; i++) {
        if (record->fields[i].kind == JSON_MEMBERS)
            put_properties(record->fields[i].of, w);
        else if (!was_before(record, i))
            put_field(&record->fields[i], w);
    }
}

/* @return number of entries; `w` NULL: only that */
static uint32_t put_required(const json_record *record, ty_json_writer *w)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < record->field_count; i++) {
        const json_field *f = &record->fields[i];
        if (f->kind == JSON_MEMBERS) {
            count += put_required(f->of, w);
        } else if (f->applies == NULL && f->applies_in == NULL && !f->is_optional) {
            count++;
            if (w != NULL)
                ty_json_put_string(w, NULL, f->key);
        }
    }
    return count;
}

static void put_record(const json_record *record, ty_json_writer *w)
{
    ty_json_put_string(w, "type", "object");
    if (put_required(record, NULL) > 0) {
        ty_json_open(w, "required", '[');
        put_required(record, w);
        ty_json_close(w, ']');
    }
    ty_json_open(w, "properties", '{');
    put_properties(record, w);
    ty_json_close(w, '}');
    ty_json_put_bool(w, "additionalProperties", false);
}

static const struct {
    const char *file;
    const json_record *record;
} records[] = {
    {"optimizer.json", &ty_optimizer_record},
    {"step-summary.json", &ty_step_summary_record},
    {"training-cost.json", &ty_training_cost_record},
    {"plan.json", &ty_plan_record},
    {"profile.json", &ty_profile_record},
    {"run.json", &ty_run_record},
    {"cluster.json", &ty_cluster_record},
    {"device.json", &ty_device_figures_record},
    {"samples.json", &ty_samples_record},
    {"timeline.json", &ty_timeline_record},
    {"program.json", &ty_program_record},
    {"job.json", &ty_job_record},
    {"workload.json", &ty_workload_record},
    {"checkpoint.json", &checkpoint_latest_record},
    {"phases.json", &ty_phases_record},
};

int main(void)
{
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    const ty_stack_constant *constant;

    ty_json_open(&w, NULL, '{');
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++) {
        ty_json_open_flat(&w, lists[l].key, '[');
        for (int i = 0; i < lists[l].count; i++)
            ty_json_put_string(&w, NULL, lists[l].name(i));
        ty_json_close(&w, ']');
    }
    ty_json_open(&w, "attributes", '{');
    for (ty_attribute a = 0; a < TY_ATTRIBUTE_COUNT; a++) {
        ty_json_open_flat(&w, ty_attribute_name(a), '{');
        ty_json_put_string(&w, "type", "integer");
        ty_json_put_uint(&w, "minimum", ty_attribute_is_size(a) ? 1 : 0);
        ty_json_put_uint(&w, "maximum", ty_attribute_is_flag(a) ? 1 : TY_MAX_ATTRIBUTE);
        ty_json_close(&w, '}');
    }
    ty_json_close(&w, '}');
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
    ty_json_open(&w, "records", '{');
    for (size_t r = 0; r < sizeof records / sizeof records[0]; r++) {
        ty_json_open(&w, records[r].file, '{');
        put_record(records[r].record, &w);
        ty_json_close(&w, '}');
    }
    ty_json_close(&w, '}');
    ty_json_close(&w, '}');
    if (text.failed != TY_OK)
        return 1;
    puts(text.data);
    ty_text_clear(&text);
    return 0;
}
