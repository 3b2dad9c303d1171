/* libFuzzer: any bytes are refused, or give tensors that lie inside the bytes. */
#include <stdlib.h>
#include <string.h>

#include "../../ref/io/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned char sink;

static void check(const uint8_t *image, size_t size)
{
    struct mr_safetensors *file;
    struct mr_error err = {""};
    enum mr_status status = mr_safetensors_parse(image, size, "fuzz", &file, &err);
    if (status ? file || !*err.text : !file) abort();
    for (size_t i = 0; !status && i < mr_safetensors_count(file); i++) {
        struct mr_tensor t = mr_safetensors_tensor(file, i), same;
        const unsigned char *bytes = t.data;
        if (!mr_safetensors_find(file, mr_safetensors_name(file, i), &same)) abort();
        if (same.data != t.data || same.bytes != t.bytes) abort();
        if (t.bytes) sink = (unsigned char)(bytes[0] ^ bytes[t.bytes - 1]);
    }
    if (!status) mr_safetensors_metadata(file, "format");
    mr_safetensors_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *image = malloc(size ? size : 1); /* of exactly size, so that ASan guards its end */
    if (!image) return 0;
    if (size) memcpy(image, data, size);
    check(image, size);
    /* Mutations rarely keep the length right, and a wrong one ends the parse at once: try the same
     * bytes with a header that ends at the last closing brace. */
    size_t end = size;
    while (end > 8 && image[end - 1] != '}') end--;
    for (size_t i = 0; end > 8 && i < 8; i++) image[i] = (uint8_t)((uint64_t)(end - 8) >> 8 * i);
    if (end > 8) check(image, size);
    free(image);
    return 0;
}
