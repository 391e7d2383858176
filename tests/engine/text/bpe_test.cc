#include "engine/text/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace quire::engine::text {
namespace {

using testing::ElementsAre;

std::array<TokenId, 256> EveryByte() {
  std::array<TokenId, 256> ids;
  for (int byte = 0; byte < 256; ++byte) ids[static_cast<std::size_t>(byte)] = byte;
  return ids;
}

std::vector<TokenId> Encode(const Bpe& bpe, std::string_view piece) {
  BpeScratch scratch;
  std::vector<TokenId> ids;
  bpe.Encode(piece, scratch, ids);
  return ids;
}

TEST(Bpe, JoinsByRankNotByPosition) {
  // "abc": of ab and bc the earlier in the list goes first.
  EXPECT_THAT(Encode(Bpe(EveryByte(), {{'b', 'c', 300}, {'a', 'b', 301}}, {}), "abc"),
              ElementsAre('a', 300));
  EXPECT_THAT(Encode(Bpe(EveryByte(), {{'a', 'b', 301}, {'b', 'c', 300}}, {}), "abc"),
              ElementsAre(301, 'c'));
}

TEST(Bpe, JoinsEqualRanksFromTheLeft) {
  const Bpe bpe(EveryByte(), {{'a', 'a', 300}, {300, 'a', 301}}, {});
  EXPECT_THAT(Encode(bpe, "aaa"), ElementsAre(301));
  EXPECT_THAT(Encode(bpe, "aaaa"), ElementsAre(300, 300));
  EXPECT_THAT(Encode(bpe, "aaaaa"), ElementsAre(300, 301));
}

TEST(Bpe, JoinsJoinedSymbolsInBothDirections) {
  const Bpe bpe(EveryByte(), {{'b', 'c', 300}, {'a', 300, 301}, {301, 'd', 302}}, {});
  EXPECT_THAT(Encode(bpe, "abcd"), ElementsAre(302));
  EXPECT_THAT(Encode(bpe, "xabcabcdx"), ElementsAre('x', 301, 302, 'x'));
}

TEST(Bpe, BytesWithoutATokenVanishOrBecomeUnknown) {
  std::array<TokenId, 256> ids = EveryByte();
  ids['?'] = -1;
  const std::vector<Bpe::Merge> merges = {{'a', 'b', 300}};
  EXPECT_THAT(Encode(Bpe(ids, merges, {}), "a?b??"), ElementsAre(300));
  EXPECT_THAT(Encode(Bpe(ids, merges, Bpe::Unknown{.id = 9, .fuse = false}), "a?b??"),
              ElementsAre('a', 9, 'b', 9, 9));
  EXPECT_THAT(Encode(Bpe(ids, merges, Bpe::Unknown{.id = 9, .fuse = true}), "a?b??"),
              ElementsAre('a', 9, 'b', 9));
}

TEST(Bpe, C66_WholePiecesAreNotMergedWhenMergesAreIgnored) {
  Bpe bpe(EveryByte(), {{'a', 'b', 300}}, {});
  EXPECT_THAT(Encode(bpe, "abc"), ElementsAre(300, 'c'));
  bpe.SetWholePieces({{"abc", 400}});
  EXPECT_THAT(Encode(bpe, "abc"), ElementsAre(400));
  EXPECT_THAT(Encode(bpe, "abcd"), ElementsAre(300, 'c', 'd'));
}

// One unbroken run must not cost more per byte because it is longer.
TEST(Bpe, C63_WorkIsLinearInHeapOperations) {
  std::vector<Bpe::Merge> merges;  // a a, aa aa, aaaa aaaa, …
  for (TokenId id = 'a', next = 300; next < 316; id = next++) merges.push_back({id, id, next});
  const Bpe bpe(EveryByte(), merges, {});
  for (const std::size_t length : {1000U, 100000U}) {
    BpeScratch scratch;
    std::vector<TokenId> ids;
    bpe.Encode(std::string(length, 'a'), scratch, ids);
    EXPECT_GT(scratch.num_heap_operations, static_cast<std::int64_t>(length));
    EXPECT_LE(scratch.num_heap_operations, static_cast<std::int64_t>(6 * length));
  }
}

}  // namespace
}  // namespace quire::engine::text
