/* Figures of a stack on some devices: by device, then by generation. */
#include "stack_on.h"

#include "json_parts.h"
#include "ty_base.h"

#include <math.h>
#include <string.h>

#define MOST_DEVICES 1000

_Static_assert(offsetof(ty_stack, kernel_s) - offsetof(ty_stack, product_share) ==
                   (TY_STACK_DEVICE_CONSTANTS - 1) * sizeof(double),
               "the constants that may differ by device lie first, one behind the other");

/* ---- In memory ------------------------------------------------------------------------------- */

bool ty_stack_names_device(const char *name, const char *device)
{
    const size_t length = strlen(name);

    return strncmp(device, name, length) == 0 && (device[length] == '\0' || device[length] == '-');
}

double ty_stack_on_device(const ty_stack *stack, const double *constant, const char *device,
                          const char *generation)
{
    const size_t i = (size_t)(constant - &stack->product_share);
    double value = *constant;
    size_t longest = 0;

    for (uint32_t o = 0; o < stack->on_count; o++) {
        const ty_stack_on *on = &stack->on[o];
        const size_t length = strlen(on->device);
        if (isnan(on->values[i]))
            continue;
        if (length > longest && ty_stack_names_device(on->device, device)) {
            longest = length;
            value = on->values[i];
        } else if (longest == 0 && generation != NULL && strcmp(generation, on->device) == 0) {
            value = on->values[i];
        }
    }
    return value;
}

/* The figures of a name; added if there are none; NULL: no memory. */
static ty_stack_on *on_named(ty_stack *stack, const char *device)
{
    ty_stack_on *grown;

    for (uint32_t o = 0; o < stack->on_count; o++)
        if (strcmp(stack->on[o].device, device) == 0)
            return &stack->on[o];
    grown = ty_resize(stack->on, stack->on_count + 1, sizeof *grown);
    if (grown == NULL)
        return NULL;
    stack->on = grown;
    grown += stack->on_count;
    *grown = (ty_stack_on){.device = ty_strdup(device)};
    if (grown->device == NULL)
        return NULL;
    for (int i = 0; i < TY_STACK_DEVICE_CONSTANTS; i++)
        grown->values[i] = (double)NAN;
    stack->on_count++;
    return grown;
}

void ty_stack_on_free(ty_stack *stack)
{
    for (uint32_t o = 0; o < stack->on_count; o++) {
        ty_free(stack->on[o].device);
        for (int i = 0; i < TY_STACK_DEVICE_CONSTANTS; i++)
            ty_free(stack->on[o].sources[i]);
    }
    ty_free(stack->on);
}

bool ty_stack_on_copy(const ty_stack *stack, ty_stack *copy)
{
    for (uint32_t o = 0; o < stack->on_count; o++) {
        ty_stack_on *on = on_named(copy, stack->on[o].device);
        if (on == NULL)
            return false;
        memcpy(on->values, stack->on[o].values, sizeof on->values);
        for (int i = 0; i < TY_STACK_DEVICE_CONSTANTS; i++) {
            on->sources[i] = ty_strdup(stack->on[o].sources[i]);
            if (on->sources[i] == NULL && stack->on[o].sources[i] != NULL)
                return false;
        }
    }
    return true;
}

void ty_stack_everywhere(ty_stack *stack, uint32_t constant)
{
    for (uint32_t o = 0; o < stack->on_count && constant < TY_STACK_DEVICE_CONSTANTS; o++) {
        stack->on[o].values[constant] = (double)NAN;
        ty_free(stack->on[o].sources[constant]);
        stack->on[o].sources[constant] = NULL;
    }
}

ty_status ty_stack_find(ty_stack *stack, const char *name, const char *generation,
                        const ty_stack_constant **constant, double **value, ty_error *error)
{
    const char *colon = strchr(name, ':'), *key = colon != NULL ? colon + 1 : name;
    const char *names[64], *close;
    const ty_stack_constant *known;
    ty_text device = {0};
    ty_stack_on *on;
    uint32_t i = 0;
    ty_status status;

    for (; (known = ty_stack_constant_at(i)) != NULL; i++) {
        if (colon == name || (colon != NULL && i == TY_STACK_DEVICE_CONSTANTS))
            known = NULL;
        if (known == NULL || strcmp(known->key, key) == 0)
            break;
        names[i] = known->key;
    }
    if (known == NULL) {
        close = ty_suggest(key, names, i, sizeof names[0]);
        return ty_fail(error, TY_EINVAL, "stack: found '%.60s', expected a constant%s%s%s%s", name,
                       colon != NULL ? " that may differ by device" : "",
                       close != NULL ? "; did you mean '" : "", close != NULL ? close : "",
                       close != NULL ? "'?" : "");
    }
    *constant = known;
    *value = ty_stack_value(stack, known);
    if (colon == NULL)
        return TY_OK;
    ty_text_append(&device, name, (size_t)(colon - name));
    TY_CHECK(ty_text_check(&device, error), status, done);
    on = on_named(stack, device.length > 0 ? device.data : "");
    TY_CHECK(ty_check_memory(on != NULL, error), status, done);
    if (isnan(on->values[i]))
        on->values[i] = ty_stack_on_device(stack, *value, on->device, generation);
    *value = &on->values[i];
done:
    ty_text_clear(&device);
    return status;
}

/* ---- In files -------------------------------------------------------------------------------- */

static void write_value(const ty_stack_constant *constant, double value, const char *key,
                        ty_json_writer *writer)
{
    if (constant->may_be_of_device && value == TY_OF_DEVICE)
        ty_json_put_string(writer, key, "device");
    else
        ty_json_put_number(writer, key, value);
}

void ty_stack_figure_to_json(const ty_stack_constant *constant, double value, const char *source,
                             ty_json_writer *writer)
{
    if (source == NULL) {
        write_value(constant, value, constant->key, writer);
        return;
    }
    ty_json_open_flat(writer, constant->key, '{');
    write_value(constant, value, "value", writer);
    ty_json_put_string(writer, "source", source);
    ty_json_close(writer, '}');
}

ty_status ty_stack_text_read(const ty_json *object, const char *key, char **text, ty_error *error)
{
    char *read;

    TY_TRY(ty_json_string_copy(object, key, &read, error));
    ty_free(*text);
    *text = read;
    return TY_OK;
}

static ty_status read_value(const ty_json *value, const ty_stack_constant *constant, double *out,
                            ty_error *error)
{
    const char *word;

    if (!constant->may_be_of_device || !ty_json_is_string(value))
        return ty_json_as_number(value, constant->minimum, constant->maximum, out, error);
    TY_TRY(ty_json_as_string(value, &word, error));
    if (strcmp(word, "device") != 0)
        return ty_json_fail(value, error, "a number or \"device\"");
    *out = TY_OF_DEVICE;
    return TY_OK;
}

ty_status ty_stack_figure_read(const ty_json *object, const ty_stack_constant *constant,
                               double *out, char **source, ty_error *error)
{
    const ty_json *figure, *value;

    TY_TRY(ty_json_member(object, constant->key, &figure, error));
    if (!ty_json_is_object(figure)) {
        ty_free(*source);
        *source = NULL;
        return read_value(figure, constant, out, error);
    }
    TY_TRY(ty_json_member(figure, "value", &value, error));
    TY_TRY(read_value(value, constant, out, error));
    TY_TRY(ty_stack_text_read(figure, "source", source, error));
    return ty_json_end(figure, error);
}

void ty_stack_on_to_json(const ty_stack *stack, ty_json_writer *writer)
{
    if (stack->on_count == 0)
        return;
    ty_json_open(writer, "on", '[');
    for (uint32_t o = 0; o < stack->on_count; o++) {
        const ty_stack_on *on = &stack->on[o];
        ty_json_open(writer, NULL, '{');
        ty_json_put_string(writer, "device", on->device);
        for (uint32_t i = 0; i < TY_STACK_DEVICE_CONSTANTS; i++)
            if (!isnan(on->values[i]))
                ty_stack_figure_to_json(ty_stack_constant_at(i), on->values[i], on->sources[i],
                                        writer);
        ty_json_close(writer, '}');
    }
    ty_json_close(writer, ']');
}

ty_status ty_stack_on_read(const ty_json *object, ty_stack *stack, ty_error *error)
{
    const ty_json *rows;
    ty_status status = ty_json_array(object, "on", 0, MOST_DEVICES, &rows, error);

    for (size_t r = 0; status == TY_OK && r < ty_json_size(rows); r++) {
        const ty_json *row = ty_json_at(rows, r);
        ty_stack_on *on;
        const char *device;
        TY_TRY(ty_json_string(row, "device", &device, error));
        if (device[0] == '\0')
            return ty_json_fail(row, error, "what names of devices begin with, or a generation");
        on = on_named(stack, device);
        TY_TRY(ty_check_memory(on != NULL, error));
        for (uint32_t i = 0; i < TY_STACK_DEVICE_CONSTANTS; i++)
            if (ty_json_has(row, ty_stack_constant_at(i)->key))
                TY_TRY(ty_stack_figure_read(row, ty_stack_constant_at(i), &on->values[i],
                                            &on->sources[i], error));
        TY_TRY(ty_json_end(row, error));
    }
    return status;
}
