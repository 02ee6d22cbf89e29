/* Writes Chakra execution traces message by message. */
#include "chakra_write.h"

#include <math.h>
#include <string.h>

static void put_attribute(ty_text *text, uint32_t field, ty_text *attribute)
{
    ty_wire_put_bytes(text, field, attribute->data != NULL ? attribute->data : "",
                      attribute->length);
    if (attribute->failed != TY_OK && text->failed == TY_OK)
        text->failed = attribute->failed;
    ty_text_clear(attribute);
}

static void put_name(ty_text *attribute, const char *name)
{
    ty_wire_put_bytes(attribute, TY_CHAKRA_ATTRIBUTE_NAME, name, strlen(name));
}

void ty_chakra_put_integer(ty_text *text, uint32_t field, const char *name, uint32_t variant,
                           uint64_t value)
{
    ty_text attribute = {0};
    put_name(&attribute, name);
    ty_wire_put_uint(&attribute, variant, value);
    put_attribute(text, field, &attribute);
}

void ty_chakra_put_number(ty_text *text, const char *name, double value)
{
    ty_text attribute = {0};
    put_name(&attribute, name);
    ty_wire_put_double(&attribute, TY_CHAKRA_DOUBLE, value);
    put_attribute(text, TY_CHAKRA_ATTRIBUTE, &attribute);
}

void ty_chakra_put_string(ty_text *text, uint32_t field, const char *name, const char *value)
{
    ty_text attribute = {0};
    put_name(&attribute, name);
    ty_wire_put_bytes(&attribute, TY_CHAKRA_STRING, value, strlen(value));
    put_attribute(text, field, &attribute);
}

void ty_chakra_put_message(ty_text *file, ty_text *message)
{
    ty_wire_put_varint(file, message->length);
    ty_text_append(file, message->data != NULL ? message->data : "", message->length);
    if (message->failed != TY_OK && file->failed == TY_OK)
        file->failed = message->failed;
    ty_text_clear(message);
}

void ty_chakra_begin_node(ty_text *node, uint64_t id, const char *name, const char *suffix,
                          uint32_t type)
{
    ty_text full = {0};
    ty_text_addf(&full, "%s%s", name, suffix);
    ty_wire_put_uint(node, TY_CHAKRA_ID, id);
    ty_wire_put_bytes(node, TY_CHAKRA_NAME, full.data != NULL ? full.data : "", full.length);
    if (full.failed != TY_OK)
        node->failed = full.failed;
    ty_text_clear(&full);
    ty_wire_put_uint(node, TY_CHAKRA_TYPE, type);
}

void ty_chakra_put_work(ty_text *node, double seconds, double flop, uint64_t bytes)
{
    if (seconds > 0)
        ty_wire_put_uint(node, TY_CHAKRA_DURATION, (uint64_t)fmin(ceil(seconds * 1e6), 9e15));
    ty_chakra_put_integer(node, TY_CHAKRA_ATTRIBUTE, "is_cpu_op", TY_CHAKRA_BOOL, 0);
    ty_chakra_put_integer(node, TY_CHAKRA_ATTRIBUTE, "num_ops", TY_CHAKRA_INT64,
                          (uint64_t)fmin(round(flop), 9e15));
    ty_chakra_put_integer(node, TY_CHAKRA_ATTRIBUTE, "tensor_size", TY_CHAKRA_UINT64, bytes);
}
