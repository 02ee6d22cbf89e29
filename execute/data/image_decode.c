/* JPEG by libjpeg, PNG by libpng. */
#include "image_decode.h"

#include <math.h>
#include <stdio.h> /* before jpeglib.h, which needs it */
#include <string.h>

#ifdef TY_HAS_JPEG
#include <jpeglib.h>

#include <jerror.h>
#include <setjmp.h>
#endif
#ifdef TY_HAS_PNG
#include <png.h>
#endif

/* Rows of [width][channels]. */
typedef struct pixels {
    uint32_t width, height, channels;
    unsigned char *data; /* owned */
} pixels;

static ty_status pixels_make(pixels *image, const char *name, ty_error *error)
{
    if (image->width == 0 || image->height == 0 ||
        (uint64_t)image->width * image->height > IMAGE_MOST_PIXELS)
        return ty_fail(error, TY_EPARSE, "%s: found an image of %u x %u, expected 1 to 2^28 pixels",
                       name, image->width, image->height);
    image->data = ty_alloc((size_t)image->width * image->height, image->channels);
    return image->data != NULL ? TY_OK : ty_fail(error, TY_ENOMEM, "%s: out of memory", name);
}

#ifdef TY_HAS_JPEG
typedef struct jpeg_failure {
    struct jpeg_error_mgr base; /* the first member: the library gets its address */
    jmp_buf back;
    char message[JMSG_LENGTH_MAX];
} jpeg_failure;

static void jpeg_fail(j_common_ptr info)
{
    jpeg_failure *failure = (jpeg_failure *)(void *)info->err;

    info->err->format_message(info, failure->message);
    longjmp(failure->back, 1);
}

/* The library decodes truncated or damaged data with a warning; it also warns about oddities that
 * change no pixel. */
static void jpeg_warn(j_common_ptr info, int level)
{
    const int code = info->err->msg_code;

    if (level < 0 && code != JWRN_EXTRANEOUS_DATA && code != JWRN_ADOBE_XFORM &&
        code != JWRN_JFIF_MAJOR)
        jpeg_fail(info);
}

/* The smallest of the library's scales that still covers the shape. */
static void jpeg_scale(struct jpeg_decompress_struct *info, const image_shape *shape)
{
    info->scale_num = 1;
    info->scale_denom = 8;
    while (info->scale_denom > 1 && (info->image_width / info->scale_denom < shape->width ||
                                     info->image_height / info->scale_denom < shape->height))
        info->scale_denom /= 2;
}

static ty_status jpeg_decode(const unsigned char *bytes, uint64_t length, const char *name,
                             const image_shape *shape, pixels *out, ty_error *error)
{
    struct jpeg_decompress_struct info;
    jpeg_failure failure;
    volatile ty_status status = TY_OK; /* longjmp returns here */

    memset(&info, 0, sizeof info);
    info.err = jpeg_std_error(&failure.base);
    failure.base.error_exit = jpeg_fail;
    failure.base.emit_message = jpeg_warn;
    if (setjmp(failure.back) != 0) {
        jpeg_destroy_decompress(&info);
        return ty_fail(error, TY_EPARSE, "%s: damaged JPEG: %s", name, failure.message);
    }
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, bytes, length);
    jpeg_read_header(&info, TRUE);
    if ((uint64_t)info.image_width * info.image_height > IMAGE_MOST_PIXELS) {
        out->width = info.image_width;
        out->height = info.image_height;
    } else {
        info.out_color_space = shape->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
        jpeg_scale(&info, shape);
        jpeg_start_decompress(&info);
        out->width = info.output_width;
        out->height = info.output_height;
    }
    out->channels = shape->channels;
    status = pixels_make(out, name, error);
    while (status == TY_OK && info.output_scanline < info.output_height) {
        JSAMPROW row = out->data + (size_t)info.output_scanline * out->width * out->channels;
        jpeg_read_scanlines(&info, &row, 1);
    }
    if (status == TY_OK)
        jpeg_finish_decompress(&info);
    jpeg_destroy_decompress(&info);
    return status;
}
#else
static ty_status jpeg_decode(const unsigned char *bytes, uint64_t length, const char *name,
                             const image_shape *shape, pixels *out, ty_error *error)
{
    (void)bytes, (void)length, (void)shape, (void)out;
    return ty_fail(error, TY_EUNSUPPORTED, "%s: this worker was built without libjpeg", name);
}
#endif

#ifdef TY_HAS_PNG
static ty_status png_decode(const unsigned char *bytes, uint64_t length, const char *name,
                            const image_shape *shape, pixels *out, ty_error *error)
{
    png_image image;
    ty_status status = TY_OK;

    memset(&image, 0, sizeof image);
    image.version = PNG_IMAGE_VERSION;
    if (png_image_begin_read_from_memory(&image, bytes, length) == 0)
        return ty_fail(error, TY_EPARSE, "%s: damaged PNG: %s", name, image.message);
    image.format = shape->channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    *out = (pixels){image.width, image.height, shape->channels, NULL};
    status = pixels_make(out, name, error);
    if (status == TY_OK && png_image_finish_read(&image, NULL, out->data, 0, NULL) == 0)
        status = ty_fail(error, TY_EPARSE, "%s: damaged PNG: %s", name, image.message);
    png_image_free(&image);
    return status;
}
#else
static ty_status png_decode(const unsigned char *bytes, uint64_t length, const char *name,
                            const image_shape *shape, pixels *out, ty_error *error)
{
    (void)bytes, (void)length, (void)shape, (void)out;
    return ty_fail(error, TY_EUNSUPPORTED, "%s: this worker was built without libpng", name);
}
#endif

/* Source of pixel `at` of `count` in the middle of `from`, when `scale` pixels become one. */
static void place_find(uint32_t at, uint32_t count, uint32_t from, double scale, uint32_t *low,
                       uint32_t *high, float *share)
{
    const double middle = ((double)at + 0.5 - (double)count / 2) * scale + (double)from / 2 - 0.5;
    const double place = middle < 0 ? 0 : middle > from - 1 ? from - 1 : middle;

    *low = (uint32_t)place;
    *high = *low + 1 < from ? *low + 1 : *low;
    *share = (float)(place - *low);
}

static void pixels_fit(const pixels *image, const image_shape *shape, unsigned char *out)
{
    const double across = (double)image->width / shape->width;
    const double down = (double)image->height / shape->height;
    const double scale = across < down ? across : down;

    for (uint32_t y = 0; y < shape->height; y++) {
        uint32_t top, bottom, left, right;
        float ys, xs;
        const unsigned char *upper, *lower;

        place_find(y, shape->height, image->height, scale, &top, &bottom, &ys);
        upper = image->data + (size_t)top * image->width * image->channels;
        lower = image->data + (size_t)bottom * image->width * image->channels;
        for (uint32_t x = 0; x < shape->width; x++) {
            place_find(x, shape->width, image->width, scale, &left, &right, &xs);
            left *= image->channels;
            right *= image->channels;
            for (uint32_t c = 0; c < shape->channels; c++) {
                const float a = (float)upper[left + c] * (1 - xs) + (float)upper[right + c] * xs;
                const float b = (float)lower[left + c] * (1 - xs) + (float)lower[right + c] * xs;
                out[((size_t)c * shape->height + y) * shape->width + x] =
                    (unsigned char)lrintf(a * (1 - ys) + b * ys);
            }
        }
    }
}

ty_status image_decode(const unsigned char *bytes, uint64_t length, const char *name,
                       const image_shape *shape, unsigned char *out, ty_error *error)
{
    static const unsigned char jpeg_magic[] = {0xff, 0xd8, 0xff};
    static const unsigned char png_magic[] = {0x89, 'P', 'N', 'G'};
    pixels image = {0};
    ty_status status;

    if (length >= sizeof jpeg_magic && memcmp(bytes, jpeg_magic, sizeof jpeg_magic) == 0)
        status = jpeg_decode(bytes, length, name, shape, &image, error);
    else if (length >= sizeof png_magic && memcmp(bytes, png_magic, sizeof png_magic) == 0)
        status = png_decode(bytes, length, name, shape, &image, error);
    else
        status = ty_fail(error, TY_EPARSE, "%s: found no image, expected JPEG or PNG", name);
    if (status == TY_OK)
        pixels_fit(&image, shape, out);
    ty_free(image.data);
    return status;
}
