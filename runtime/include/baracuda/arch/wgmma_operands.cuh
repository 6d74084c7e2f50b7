// The registers of a wgmma's sums, as operands of inline PTX (`kind` is their constraint) and as their text.
#pragma once

#define BARACUDA_TEXT_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define BARACUDA_TEXT_16 BARACUDA_TEXT_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define BARACUDA_TEXT_32 \
    BARACUDA_TEXT_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define BARACUDA_TEXT_40 BARACUDA_TEXT_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define BARACUDA_TEXT_48 \
    BARACUDA_TEXT_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define BARACUDA_TEXT_64 \
    BARACUDA_TEXT_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define BARACUDA_TEXT_96                                                               \
    BARACUDA_TEXT_64                                                                   \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
    ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define BARACUDA_TEXT_128                                                                          \
    BARACUDA_TEXT_96                                                                               \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
    ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define BARACUDA_SUM_4(kind, i) "+" kind(sum[i]), "+" kind(sum[i + 1]), "+" kind(sum[i + 2]), "+" kind(sum[i + 3])
#define BARACUDA_SUM_8(kind, i) BARACUDA_SUM_4(kind, i), BARACUDA_SUM_4(kind, i + 4)
#define BARACUDA_SUM_16(kind, i) BARACUDA_SUM_8(kind, i), BARACUDA_SUM_8(kind, i + 8)
#define BARACUDA_SUM_32(kind, i) BARACUDA_SUM_16(kind, i), BARACUDA_SUM_16(kind, i + 16)
#define BARACUDA_SUM_40(kind, i) BARACUDA_SUM_32(kind, i), BARACUDA_SUM_4(kind, i + 32), BARACUDA_SUM_4(kind, i + 36)
#define BARACUDA_SUM_48(kind, i) BARACUDA_SUM_32(kind, i), BARACUDA_SUM_16(kind, i + 32)
#define BARACUDA_SUM_64(kind, i) BARACUDA_SUM_32(kind, i), BARACUDA_SUM_32(kind, i + 32)
#define BARACUDA_SUM_96(kind, i) BARACUDA_SUM_64(kind, i), BARACUDA_SUM_32(kind, i + 64)
#define BARACUDA_SUM_128(kind, i) BARACUDA_SUM_64(kind, i), BARACUDA_SUM_64(kind, i + 64)
