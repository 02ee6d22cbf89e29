/* Prices of devices: the one given, the host's, or the catalogue's. */
#include "prices.h"

#include <stdio.h>
#include <string.h>

#define MOST_PRICE 1e6
#define MOST_ROWS 10000
#define LIST_PRICE "on-demand" /* kind of the hosts' prices in the cluster catalogue */

void ty_prices_clear(ty_prices *prices)
{
    for (uint32_t i = 0; i < prices->given_count; i++)
        ty_free(prices->given[i].device);
    ty_json_free(prices->document);
    *prices = (ty_prices){0};
}

/* ---- The question ------------------------------------------------------------------------- */

ty_status ty_read_or_factor(const char *text, const char *unit, const char *option, double *value,
                            bool *is_factor, ty_error *error)
{
    char number[32];
    size_t length, tail = strlen(unit);

    *is_factor = text[0] == 'x';
    snprintf(number, sizeof number, "%.30s", text + *is_factor);
    length = strlen(number);
    if (!*is_factor && length > tail && strcmp(number + length - tail, unit) == 0)
        number[length - tail] = '\0';
    if (ty_parse_count(number, value, NULL) == TY_OK && *value <= MOST_PRICE)
        return TY_OK;
    return ty_fail(error, TY_EINVAL,
                   "--%s: found '%.40s', expected a number%s%s or a factor as in x2", option, text,
                   unit[0] != '\0' ? " of " : "", unit);
}

/* Finds a kind of price by its name or a prefix. */
static ty_status find_kind(const char *word, ty_prices *prices, ty_error *error)
{
    const char *kinds[32] = {LIST_PRICE}, *kind;
    size_t count = 1, k;
    bool is_whole;
    ty_text list = {0};
    ty_status status = TY_OK;

    for (size_t i = 0; i < ty_json_size(prices->rows); i++) {
        TY_CHECK(ty_json_string(ty_json_at(prices->rows, i), "kind", &kind, error), status, done);
        for (k = 0; k < count && strcmp(kinds[k], kind) != 0; k++)
            continue;
        if (k == count && count < sizeof kinds / sizeof kinds[0])
            kinds[count++] = kind;
    }
    kind = ty_name_find(word, kinds, count, sizeof kinds[0], &is_whole);
    if (kind != NULL) {
        snprintf(prices->kind, sizeof prices->kind, "%s", kind);
        return TY_OK;
    }
    for (k = 0; k < count; k++)
        ty_text_addf(&list, "%s%s", k == 0 ? "" : k + 1 < count ? ", " : " or ", kinds[k]);
    TY_CHECK(ty_text_check(&list, error), status, done);
    status =
        ty_fail(error, TY_EINVAL,
                "--price: found '%.40s', expected dollars per device and hour as in 2.50, those "
                "of a device as in h100=2.50, or a kind of price: %s",
                word, list.data);
done:
    ty_text_clear(&list);
    return status;
}

static ty_status read_item(char *item, ty_prices *prices, ty_error *error)
{
    char *equals = strchr(item, '='), *number = equals != NULL ? equals + 1 : item;
    double usd;
    char *device = NULL;
    ty_status status = TY_OK;

    number += strspn(number, " $");
    if (ty_parse_count(number, &usd, NULL) != TY_OK || usd > MOST_PRICE) {
        if (equals == NULL)
            return find_kind(item, prices, error);
        return ty_fail(error, TY_EINVAL, "--price: found '%.40s', expected dollars as in 2.50",
                       number);
    }
    if (prices->given_count == TY_MOST_GIVEN_PRICES)
        return ty_fail(error, TY_EINVAL, "--price: found more than %d prices",
                       TY_MOST_GIVEN_PRICES);
    if (equals != NULL) {
        *equals = '\0';
        status = ty_device_named(item, &device, error);
        if (status == TY_OK && device == NULL)
            return ty_fail(error, TY_EINVAL,
                           "--price: found '%.40s', expected a device of the catalogue", item);
    }
    if (status == TY_OK) {
        prices->given[prices->given_count].device = device;
        prices->given[prices->given_count++].usd_per_device_hour = usd;
    }
    return status;
}

ty_status ty_prices_open(const char *text, ty_prices *out, ty_error *error)
{
    ty_prices prices = {0};
    char *path = NULL, *words = NULL, *rest, *item;
    const ty_json *root;
    ty_status status;

    TY_CHECK(ty_data_path("study/catalogue", "prices.json", &path, error), status, cleanup);
    TY_CHECK(ty_json_load(path, &prices.document, error), status, cleanup);
    root = ty_json_root(prices.document);
    TY_CHECK(ty_json_schema(root, "trainyard.prices/1", error), status, cleanup);
    TY_CHECK(ty_json_object(root, "sources", &prices.sources, error), status, cleanup);
    TY_CHECK(ty_json_array(root, "prices", 1, MOST_ROWS, &prices.rows, error), status, cleanup);
    TY_CHECK(ty_json_end(root, error), status, cleanup);
    if (text != NULL) {
        words = ty_strdup(text);
        TY_CHECK(ty_check_memory(words != NULL, error), status, cleanup);
        for (rest = words; (item = strtok_r(rest, ",", &rest)) != NULL;)
            TY_CHECK(read_item(item + strspn(item, " "), &prices, error), status, cleanup);
    }
    *out = prices;
    prices = (ty_prices){0}; /* ownership moved */

cleanup:
    ty_prices_clear(&prices);
    ty_free(words);
    ty_free(path);
    return status;
}

/* ---- One price --------------------------------------------------------------------------- */

/* The first row of a host or device, of the requested kind. */
static ty_status find_row(const ty_prices *prices, const char *name, ty_price *out, ty_error *error)
{
    for (size_t i = 0; i < ty_json_size(prices->rows); i++) {
        const ty_json *row = ty_json_at(prices->rows, i);
        const char *of, *kind, *date, *key, *source;
        TY_TRY(ty_json_string(row, "name", &of, error));
        TY_TRY(ty_json_string(row, "kind", &kind, error));
        if (strcmp(of, name) != 0 || (prices->kind[0] != '\0' && strcmp(prices->kind, kind) != 0))
            continue;
        TY_TRY(ty_json_number(row, "usd_per_device_hour", 0, MOST_PRICE, &out->usd_per_device_hour,
                              error));
        TY_TRY(ty_json_string(row, "date", &date, error));
        TY_TRY(ty_json_string(row, "source", &key, error));
        TY_TRY(ty_json_string(prices->sources, key, &source, error));
        snprintf(out->kind, sizeof out->kind, "%s", kind);
        snprintf(out->note, sizeof out->note, "%.16s: %.160s", date, source);
        return TY_OK;
    }
    return TY_OK;
}

ty_status ty_price_of(const ty_prices *prices, const ty_host_type *host, uint32_t host_devices,
                      const ty_device_type *device, ty_price *out, ty_error *error)
{
    const bool has_list = host != NULL && host->price_date != NULL && host_devices > 0;
    const bool is_listed = prices->kind[0] == '\0' || strcmp(prices->kind, LIST_PRICE) == 0;
    ty_status status = TY_OK;

    *out = (ty_price){0};
    for (uint32_t i = 0; i < prices->given_count; i++)
        if (prices->given[i].device == NULL || strcmp(prices->given[i].device, device->name) == 0) {
            out->usd_per_device_hour = prices->given[i].usd_per_device_hour;
            snprintf(out->kind, sizeof out->kind, "given");
        }
    if (out->kind[0] == '\0' && has_list && is_listed) {
        out->usd_per_device_hour = host->price_usd_per_hour / host_devices;
        snprintf(out->kind, sizeof out->kind, LIST_PRICE);
        snprintf(out->note, sizeof out->note, "%.16s: %.160s", host->price_date,
                 host->price_source);
    }
    if (out->kind[0] == '\0' && host != NULL)
        status = find_row(prices, host->name, out, error);
    if (status == TY_OK && out->kind[0] == '\0')
        status = find_row(prices, device->name, out, error);
    return status;
}
