/*M!999999\- enable the sandbox mode */ 
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `storefront_orders` (
  `id` varchar(255) NOT NULL,
  `qty` bigint(20) NOT NULL,
  `created_ms` bigint(20) NOT NULL,
  `keyed_ms` bigint(20) DEFAULT (timestampdiff(MICROSECOND,'1970-01-01',utc_timestamp(3)) DIV 1000),
  `item` text NOT NULL,
  `scope` varbinary(255) NOT NULL,
  `key_hash` binary(32) DEFAULT NULL,
  `key_fingerprint` binary(32) DEFAULT NULL,
  `place` binary(8) DEFAULT left(`key_hash`,8),
  `fields` longtext NOT NULL DEFAULT '',
  PRIMARY KEY (`id`),
  UNIQUE KEY `key_hash` (`key_hash`),
  KEY `storefront_orders_scope` (`scope`,`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `storefront_orders` VALUES ('ord_0pggfss63jo03bmnir5c781o7i',2,1795536638582,1795963306722,'teapot','',0xB222AE4F77787A26F9AD5409B9E5FB7BDE760441C221BB8654E7C60027984FDD,0x3903FFCFF8DA5F1D5E2F991405736371419170CE556F44078E66B0DE15C3EF1E,0xB222AE4F77787A26,'');
INSERT INTO `storefront_orders` VALUES ('ord_0pggfss6ga00m48t8vu6ajov7f',1,1795536638608,1795963306722,'kettle','',0xB1A9CC39A6195656FE9C987C43921C54C6157712037C1AC756DC85A589728789,0x4A53B7138C44E0E3B70473FD9D4BE34E7D5D4181111A598823AB4A1F47E5AD41,0xB1A9CC39A6195656,'');
INSERT INTO `storefront_orders` VALUES ('ord_0pggfss6ml40bt1q37gurfjakk',9007199254740991,1795536638621,1795963306723,'ééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé','',0xA374E357C3E2D7599B3067718525A9363F681DDF4D358ED6C2489A52643EBBA6,0x9B2D89454CFC0A993E5DD5A2E1495C4B7847A7184CF46404CCF8305069B9328A,0xA374E357C3E2D759,'');
INSERT INTO `storefront_orders` VALUES ('ord_0pggfss6o4004t73jqr7jvssmr',3,1795536638624,1795963306723,'another account\'s teapot 😀',0x616461,0x60C001CF36F2E64212538767F1B694ECB1E77766563A641E4CB8A9D31C9C058E,0x9FC28D16687C3932D3CEA4504DFAB13EC3EB672F267FF4EB25965F7E043CFA45,0x60C001CF36F2E642,'');
INSERT INTO `storefront_orders` VALUES ('ord_0pggfss79mg0cbcoubvh9au9eg',2,1795536638660,1795963306724,'teapot',0xC3A97665,0xBCE2383CF9183E15CC25CE053AFDC4580B981685E9A06425AD869C725CD9169F,0x3903FFCFF8DA5F1D5E2F991405736371419170CE556F44078E66B0DE15C3EF1E,0xBCE2383CF9183E15,'');
INSERT INTO `storefront_orders` VALUES ('ord_0pggfssa0k3c1n2v8d0q4h6t9b',2,1795536639700,1795963306724,'teapot',0x616461,0xEEEBB2B9453789E41099C1F70C0B0998099769C6913FA4928414DA986E945378,0x2AFE64E687AD63015BBCF604BE05E32024D38B016534A5CB52597B8AB5BF02DD,0xEEEBB2B9453789E4,'{\"a\":1}');
INSERT INTO `storefront_orders` VALUES ('ord_0pggfssa1k3c1n2v8d0q4h6t9b',2,1795536639710,1795963306725,'teapot',0x616461,0xAD5EB163B1400D1865BEDC0A780BF66799EE942AEB70200220D08F05A6153C4B,0x8F00922C1707546EC0D97315A9FFA8ACE01E3FD06A0600249415F212F2800862,0xAD5EB163B1400D18,'{\"b\":[1.0,2e1,-0,1e30],\"a\":\"é 😀\",\"\":{\"x\":null,\"y\":[],\"z\":{}}}');
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `storefront_products` (
  `id` varbinary(255) NOT NULL,
  `body` longtext NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `storefront_products` VALUES (0x20,'{\"id\":\" \",\"n\":[0,-0,1.0,1e2,1E-7,12345678901234567890,0.1]}');
INSERT INTO `storefront_products` VALUES (0x22,'{\"id\":\"\\\"\",\"text\":\"<b>&amp;</b> \\u2028 \\u0000 \\\" \\\\ / é 😀 😀\"}');
INSERT INTO `storefront_products` VALUES (0x253246,'{\"id\":\"%2F\"}');
INSERT INTO `storefront_products` VALUES (0x30,'{\"id\":\"0\",\"name\":\"Ada\",\"since\":2024}');
INSERT INTO `storefront_products` VALUES (0x61206226633D642365,'{\"id\":\"a b&c=d#e\",\"z\":1,\"a\":2,\"ID\":\"another member\"}');
INSERT INTO `storefront_products` VALUES (0x612F62,'{\"id\":\"a/b\",\"spaced\":[1,2],\"a\":{},\"\":\"\"}');
INSERT INTO `storefront_products` VALUES (0x616461,'{\"id\":\"ada\"}');
INSERT INTO `storefront_products` VALUES (0x65CC81,'{\"id\":\"é\",\"price\":{\"amount\":\"24.50\",\"currency\":\"EUR\"},\"tags\":[\"a\",null,true]}');
INSERT INTO `storefront_products` VALUES (0x787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878,'{\"id\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\",\"z\":1,\"a\":2,\"ID\":\"another member\"}');
INSERT INTO `storefront_products` VALUES (0x7E,'{\"id\":\"~\",\"price\":{\"amount\":\"24.50\",\"currency\":\"EUR\"},\"tags\":[\"a\",null,true]}');
INSERT INTO `storefront_products` VALUES (0xC2A0,'{\"id\":\" \",\"spaced\":[1,2],\"a\":{},\"\":\"\"}');
INSERT INTO `storefront_products` VALUES (0xC3A9,'{\"id\":\"é\",\"name\":\"Ada\",\"since\":2024}');
INSERT INTO `storefront_products` VALUES (0xC3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9,'{\"id\":\"ééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé\"}');
INSERT INTO `storefront_products` VALUES (0xE697A5E69CACE8AA9E,'{\"id\":\"日本語\",\"n\":[0,-0,1.0,1e2,1E-7,12345678901234567890,0.1]}');
INSERT INTO `storefront_products` VALUES (0xF09F9880,'{\"id\":\"😀\",\"text\":\"<b>&amp;</b> \\u2028 \\u0000 \\\" \\\\ / é 😀 😀\"}');
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `storefront_replays` (
  `slot` int(11) NOT NULL,
  `number` bigint(20) NOT NULL,
  PRIMARY KEY (`slot`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
/*!40101 SET character_set_client = @saved_cs_client */;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `storefront_schema` (
  `version` bigint(20) NOT NULL,
  `oldest` bigint(20) NOT NULL,
  `keep_ms` bigint(20) DEFAULT NULL,
  `forgotten_ms` bigint(20) DEFAULT NULL,
  PRIMARY KEY (`version`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `storefront_schema` VALUES (1,1,NULL,NULL);
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `storefront_users` (
  `id` varbinary(255) NOT NULL,
  `body` longtext NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `storefront_users` VALUES (0x20,'{\"id\":\" \",\"n\":[0,-0,1.0,1e2,1E-7,12345678901234567890,0.1]}');
INSERT INTO `storefront_users` VALUES (0x22,'{\"id\":\"\\\"\",\"text\":\"<b>&amp;</b> \\u2028 \\u0000 \\\" \\\\ / é 😀 😀\"}');
INSERT INTO `storefront_users` VALUES (0x253246,'{\"id\":\"%2F\"}');
INSERT INTO `storefront_users` VALUES (0x30,'{\"id\":\"0\",\"name\":\"Ada\",\"since\":2024}');
INSERT INTO `storefront_users` VALUES (0x61206226633D642365,'{\"id\":\"a b&c=d#e\",\"z\":1,\"a\":2,\"ID\":\"another member\"}');
INSERT INTO `storefront_users` VALUES (0x612F62,'{\"id\":\"a/b\",\"spaced\":[1,2],\"a\":{},\"\":\"\"}');
INSERT INTO `storefront_users` VALUES (0x616461,'{\"id\":\"ada\"}');
INSERT INTO `storefront_users` VALUES (0x65CC81,'{\"id\":\"é\",\"price\":{\"amount\":\"24.50\",\"currency\":\"EUR\"},\"tags\":[\"a\",null,true]}');
INSERT INTO `storefront_users` VALUES (0x787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878,'{\"id\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\",\"z\":1,\"a\":2,\"ID\":\"another member\"}');
INSERT INTO `storefront_users` VALUES (0x7E,'{\"id\":\"~\",\"price\":{\"amount\":\"24.50\",\"currency\":\"EUR\"},\"tags\":[\"a\",null,true]}');
INSERT INTO `storefront_users` VALUES (0xC2A0,'{\"id\":\" \",\"spaced\":[1,2],\"a\":{},\"\":\"\"}');
INSERT INTO `storefront_users` VALUES (0xC3A9,'{\"id\":\"é\",\"name\":\"Ada\",\"since\":2024}');
INSERT INTO `storefront_users` VALUES (0xC3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9,'{\"id\":\"ééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé\"}');
INSERT INTO `storefront_users` VALUES (0xE697A5E69CACE8AA9E,'{\"id\":\"日本語\",\"n\":[0,-0,1.0,1e2,1E-7,12345678901234567890,0.1]}');
INSERT INTO `storefront_users` VALUES (0xF09F9880,'{\"id\":\"😀\",\"text\":\"<b>&amp;</b> \\u2028 \\u0000 \\\" \\\\ / é 😀 😀\"}');
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `storefront_widgets` (
  `id` varbinary(255) NOT NULL,
  `body` longtext NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
/*!40101 SET character_set_client = @saved_cs_client */;
INSERT INTO `storefront_widgets` VALUES (0x20,'{\"id\":\" \",\"n\":[0,-0,1.0,1e2,1E-7,12345678901234567890,0.1]}');
INSERT INTO `storefront_widgets` VALUES (0x22,'{\"id\":\"\\\"\",\"text\":\"<b>&amp;</b> \\u2028 \\u0000 \\\" \\\\ / é 😀 😀\"}');
INSERT INTO `storefront_widgets` VALUES (0x253246,'{\"id\":\"%2F\"}');
INSERT INTO `storefront_widgets` VALUES (0x30,'{\"id\":\"0\",\"name\":\"Ada\",\"since\":2024}');
INSERT INTO `storefront_widgets` VALUES (0x61206226633D642365,'{\"id\":\"a b&c=d#e\",\"z\":1,\"a\":2,\"ID\":\"another member\"}');
INSERT INTO `storefront_widgets` VALUES (0x612F62,'{\"id\":\"a/b\",\"spaced\":[1,2],\"a\":{},\"\":\"\"}');
INSERT INTO `storefront_widgets` VALUES (0x616461,'{\"id\":\"ada\"}');
INSERT INTO `storefront_widgets` VALUES (0x65CC81,'{\"id\":\"é\",\"price\":{\"amount\":\"24.50\",\"currency\":\"EUR\"},\"tags\":[\"a\",null,true]}');
INSERT INTO `storefront_widgets` VALUES (0x787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878,'{\"id\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\",\"z\":1,\"a\":2,\"ID\":\"another member\"}');
INSERT INTO `storefront_widgets` VALUES (0x7E,'{\"id\":\"~\",\"price\":{\"amount\":\"24.50\",\"currency\":\"EUR\"},\"tags\":[\"a\",null,true]}');
INSERT INTO `storefront_widgets` VALUES (0xC2A0,'{\"id\":\" \",\"spaced\":[1,2],\"a\":{},\"\":\"\"}');
INSERT INTO `storefront_widgets` VALUES (0xC3A9,'{\"id\":\"é\",\"name\":\"Ada\",\"since\":2024}');
INSERT INTO `storefront_widgets` VALUES (0xC3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9C3A9,'{\"id\":\"ééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé\"}');
INSERT INTO `storefront_widgets` VALUES (0xE697A5E69CACE8AA9E,'{\"id\":\"日本語\",\"n\":[0,-0,1.0,1e2,1E-7,12345678901234567890,0.1]}');
INSERT INTO `storefront_widgets` VALUES (0xF09F9880,'{\"id\":\"😀\",\"text\":\"<b>&amp;</b> \\u2028 \\u0000 \\\" \\\\ / é 😀 😀\"}');
