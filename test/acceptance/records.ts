/**
 * Short records in many languages, each with summaries that a careful writer would give: in the record's own language, and in
 * another. The conversations of a help desk contain the words of refusals ("sorry", "I cannot", "help", "request").
 */
export interface TestRecord {
  lang: string;
  /** `service` is polite and apologizes; `talk` names no identifier at all. */
  kind: 'service' | 'talk' | 'work';
  lines: readonly string[];
  summaries: readonly string[];
  /** In another language than the record's. */
  translated: readonly string[];
}

export const records: readonly TestRecord[] = [
  {
    lang: 'de',
    kind: 'service',
    lines: [
      'user: Guten Tag, mein Paket ist seit zwei Wochen nicht angekommen. Können Sie mir bitte helfen?',
      'assistant: Das tut mir leid! Dabei helfe ich Ihnen gerne. Bitte geben Sie mir die Bestellnummer.',
      'user: Die Nummer ist 7741-BX. Ich hatte Winterstiefel und einen Schal bestellt.',
      'assistant: Leider kann ich die Adresse in dieser Bestellung nicht mehr ändern, weil sie schon beim Zusteller in Leipzig liegt.',
      'user: Dann möchte ich mein Geld zurück.',
      'assistant: Es tut mir leid, aber eine Erstattung kann ich erst nach Ablauf von 21 Tagen anbieten. Ich habe eine Nachforschung gestartet.',
      'user: Na gut. Bitte melden Sie sich per E-Mail.',
    ],
    summaries: [
      'Der Kunde vermisst die Bestellung 7741-BX (Winterstiefel, Schal). Sie liegt beim Zusteller in Leipzig, eine Nachforschung läuft; Erstattung erst nach 21 Tagen. Antwort per E-Mail gewünscht.',
      '## Ziel\n- Paket suchen oder Geld zurück\n## Stand\n- Nachforschung beim Zusteller gestartet',
    ],
    translated: [
      '## Session intent\n- The customer wants order 7741-BX (winter boots, scarf) found or refunded\n## Current state\n- A trace was started with the carrier in Leipzig; a refund is possible after 21 days',
    ],
  },
  {
    lang: 'de',
    kind: 'talk',
    lines: [
      'user: Na, wie war dein Wochenende?',
      'assistant: Schön! Wir waren im Wald und haben Pilze gesammelt. Und bei dir?',
      'user: Ich hab nur geschlafen und am Sonntag Kuchen gebacken.',
      'assistant: Was für einen denn?',
      'user: Apfelkuchen, nach dem Rezept von meiner Oma.',
      'assistant: Lecker. Bring doch mal ein Stück mit!',
    ],
    summaries: [
      'Sie erzählen vom Wochenende: die eine sammelte Pilze im Wald, die andere schlief viel und backte Omas Apfelkuchen.',
      '- Gespräch über das Wochenende: Pilze sammeln, Apfelkuchen backen',
    ],
    translated: [],
  },
  {
    lang: 'ru',
    kind: 'service',
    lines: [
      'user: Здравствуйте! Помогите, пожалуйста, отменить бронирование гостиницы в Казани.',
      'assistant: Здравствуйте! Конечно, помогу. Сообщите, пожалуйста, номер бронирования.',
      'user: KZ-30418, на имя Светланы Орловой, двухместный номер.',
      'assistant: К сожалению, я не могу отменить его бесплатно: до заезда осталось меньше суток. Приношу извинения.',
      'user: А перенести на следующую неделю можно?',
      'assistant: Да, перенос на субботу возможен с доплатой 1200 рублей. Подтвердите запрос?',
      'user: Подтверждаю, спасибо.',
    ],
    summaries: [
      'Светлана Орлова хотела отменить бронь KZ-30418 в Казани; бесплатная отмена невозможна, поэтому заезд перенесли на субботу с доплатой 1200 рублей.',
      '- Отмена гостиницы невозможна бесплатно, бронирование перенесено на субботу с доплатой',
    ],
    translated: [
      'Svetlana Orlova asked to cancel hotel booking KZ-30418 in Kazan; it was moved to Saturday for an extra 1200 roubles instead.',
    ],
  },
  {
    lang: 'ru',
    kind: 'talk',
    lines: [
      'user: Привет, ты вчера смотрела футбол?',
      'assistant: Нет, я уснула на диване. А кто выиграл?',
      'user: Наши проиграли, вратарь пропустил смешной гол.',
      'assistant: Жалко. Зато погода сегодня хорошая, пойдём гулять?',
      'user: Давай, возьмём собаку и самокат.',
    ],
    summaries: [
      'Обсудили вчерашний футбол (команда проиграла из-за ошибки вратаря) и договорились погулять с собакой и самокатом.',
      'Говорили о проигранном матче и решили погулять.',
    ],
    translated: [],
  },
  {
    lang: 'pl',
    kind: 'service',
    lines: [
      'user: Dzień dobry, proszę o pomoc. Moja karta została odrzucona przy zakupie biletów.',
      'assistant: Bardzo mi przykro. Chętnie pomogę, proszę podać numer zamówienia.',
      'user: Zamówienie 88-1203, dwa bilety do Gdańska na piątek.',
      'assistant: Przepraszam, ale nie mogę ponowić płatności bez zgody banku. Mogę zarezerwować miejsca na dwie godziny.',
      'user: Dobrze, proszę zarezerwować. Zapłacę przelewem.',
      'assistant: Rezerwacja gotowa. Niestety faktury nie mogę wystawić przed zaksięgowaniem przelewu.',
    ],
    summaries: [
      'Płatność kartą za zamówienie 88-1203 (dwa bilety do Gdańska, piątek) odrzucona; miejsca zarezerwowano na dwie godziny, klient zapłaci przelewem, faktura po zaksięgowaniu.',
      '- Miejsca zarezerwowane na dwie godziny\n- Klient płaci przelewem',
    ],
    translated: [
      'Card refused for order 88-1203 (two tickets to Gdańsk, Friday); seats held for two hours, payment by bank transfer.',
    ],
  },
  {
    lang: 'fr',
    kind: 'service',
    lines: [
      "user: Bonjour, je voudrais de l'aide pour ma facture d'électricité, elle a doublé.",
      'assistant: Bonjour, je suis désolée pour ce désagrément. Je peux vous aider : quel est votre numéro de contrat ?',
      "user: C'est le 552 018. Je vis seule à Nantes et je chauffe très peu.",
      'assistant: Malheureusement, je ne peux pas modifier la facture, mais le relevé du compteur paraît estimé. Je demande une nouvelle lecture.',
      'user: Quand viendra le technicien ?',
      'assistant: Mardi matin entre huit heures et midi. Puis-je vous aider avec une autre demande ?',
    ],
    summaries: [
      "La cliente (contrat 552 018, Nantes) conteste une facture d'électricité doublée ; relevé estimé, un technicien relira le compteur mardi matin.",
      '- Facture contestée ; nouvelle lecture du compteur prévue mardi',
    ],
    translated: [
      'Customer of contract 552 018 in Nantes disputes a doubled electricity bill; a technician reads the meter on Tuesday morning.',
    ],
  },
  {
    lang: 'es',
    kind: 'service',
    lines: [
      'user: Hola, necesito ayuda: quiero cambiar mi vuelo a Bogotá.',
      'assistant: Hola, con mucho gusto le ayudo. ¿Me comparte su código de reserva?',
      'user: Es QX9LMP. Viajo con mi hija y un perro pequeño.',
      'assistant: Lo siento, pero no puedo cambiar esa tarifa sin costo. El cambio vale 85 dólares por persona.',
      'user: Está bien. Prefiero salir el jueves por la noche.',
      'assistant: Listo, quedan dos asientos junto a la ventana. El perro viaja en cabina.',
    ],
    summaries: [
      'Cambio de la reserva QX9LMP a Bogotá: salida el jueves por la noche, 85 dólares por persona, dos asientos de ventana, perro en cabina.',
      '- Vuelo cambiado al jueves por la noche, con hija y perro',
    ],
    translated: [
      'Booking QX9LMP to Bogotá moved to Thursday night for 85 dollars each; the dog travels in the cabin.',
    ],
  },
  {
    lang: 'pt',
    kind: 'talk',
    lines: [
      'user: Oi, mãe! Cheguei em casa agora.',
      'assistant: Que bom, filho. Comeu alguma coisa?',
      'user: Comi um pastel na feira, estava uma delícia.',
      'assistant: E a prova de matemática?',
      'user: Foi difícil, mas acho que passei.',
    ],
    summaries: [
      'O filho chegou em casa, comeu pastel na feira e acha que passou na prova difícil de matemática.',
      'Conversa sobre a prova de matemática e o pastel da feira.',
    ],
    translated: [],
  },
  {
    lang: 'it',
    kind: 'service',
    lines: [
      'user: Buongiorno, vorrei assistenza: la lavatrice perde acqua.',
      'assistant: Mi dispiace per il problema. Posso aiutarla: qual è il modello?',
      'user: È la Ondina 700, comprata a marzo.',
      'assistant: Purtroppo non posso mandare un tecnico prima di lunedì. Le consiglio di chiudere il rubinetto e controllare la guarnizione.',
      'user: La guarnizione è rotta. Quanto costa un ricambio?',
      'assistant: Il ricambio è gratuito, la garanzia è ancora valida.',
    ],
    summaries: [
      'Lavatrice Ondina 700 (acquisto di marzo) perde acqua: guarnizione rotta, ricambio gratuito in garanzia, tecnico non prima di lunedì.',
      '- La guarnizione rotta viene sostituita in garanzia',
    ],
    translated: [
      'The Ondina 700 washing machine leaks; its broken seal is replaced under warranty, the technician comes on Monday at the earliest.',
    ],
  },
  {
    lang: 'nl',
    kind: 'service',
    lines: [
      'user: Hallo, kunt u mij helpen? Mijn fietsverzekering is zomaar verlengd.',
      'assistant: Het spijt me dat te horen. Ik help u graag, mag ik uw polisnummer?',
      'user: Polis 40.118.2, op naam van Joris Vermeulen.',
      'assistant: Helaas kan ik de verlenging niet terugdraaien, maar u mag per maand opzeggen.',
      'user: Zeg hem dan op per december, want de fiets is gestolen.',
      'assistant: Dat is geregeld. Voor de diefstal heb ik nog de aangifte nodig.',
    ],
    summaries: [
      'Joris Vermeulen zegt fietsverzekering 40.118.2 op per december; de fiets is gestolen, de aangifte moet nog komen.',
      '- Verzekering opgezegd per december; aangifte van diefstal ontbreekt',
    ],
    translated: [
      'Joris Vermeulen cancels bike policy 40.118.2 from December; the police report of the theft is still missing.',
    ],
  },
  {
    lang: 'tr',
    kind: 'service',
    lines: [
      'user: Merhaba, siparişim eksik geldi, yardımcı olabilir misiniz?',
      'assistant: Merhaba, yaşadığınız sorun için üzgünüm. Sipariş numaranızı paylaşır mısınız?',
      'user: 5520-IZ. İki kutu zeytin istemiştim, bir tanesi gelmiş.',
      'assistant: Maalesef aynı gün gönderim yapamıyorum, ancak eksik kutuyu yarın kargoya verebiliriz.',
      'user: Olur, ama apartman kapıcısına bırakmasınlar.',
      'assistant: Not aldım: teslimat yalnızca size yapılacak.',
    ],
    summaries: [
      '5520-IZ siparişinde bir kutu zeytin eksik; kutu yarın kargoya verilecek, kapıcıya bırakılmayacak.',
      '- Eksik zeytin kutusu yarın gönderilecek',
    ],
    translated: [
      'One of two boxes of olives was missing from order 5520-IZ; it ships tomorrow and must not be left with the doorman.',
    ],
  },
  {
    lang: 'fi',
    kind: 'talk',
    lines: [
      'user: Moi! Miten mökkiviikko meni?',
      'assistant: Ihan mukavasti, vaikka satoi koko ajan. Saunottiin ja pelattiin korttia.',
      'user: Saitteko kalaa?',
      'assistant: Yhden hauen, mutta kissa söi sen.',
      'user: Voi ei! Tuletteko ensi kesänä uudestaan?',
    ],
    summaries: [
      'Mökkiviikolla satoi; saunottiin, pelattiin korttia ja kissa söi ainoan hauen.',
      'Juteltiin mökkiviikosta, sateesta ja saunomisesta.',
    ],
    translated: [],
  },
  {
    lang: 'hu',
    kind: 'service',
    lines: [
      'user: Jó napot! Segítséget kérek, mert nem működik az internetem.',
      'assistant: Elnézést kérek a kellemetlenségért. Szívesen segítek, kérem az ügyfélszámát.',
      'user: 60-4417, Szegeden lakom, a router pirosan villog.',
      'assistant: Sajnos távolról nem tudom újraindítani. Kérem, húzza ki tíz percre a tápkábelt.',
      'user: Megtettem, most zölden világít.',
      'assistant: Örülök! Ha a hiba megismétlődik, szerelőt küldünk.',
    ],
    summaries: [
      'A 60-4417 számú szegedi ügyfél routere pirosan villogott; a tápkábel kihúzása után zölden világít, ismétlődő hibánál szerelő megy.',
      '- A router a tápkábel kihúzása után újra működik',
    ],
    translated: [
      'Customer 60-4417 in Szeged: the router blinked red, unplugging it for ten minutes helped; a technician comes if it happens again.',
    ],
  },
  {
    lang: 'el',
    kind: 'service',
    lines: [
      'user: Καλημέρα, θα ήθελα βοήθεια με ένα αίτημα για διαβατήριο.',
      'assistant: Καλημέρα, λυπάμαι για την αναμονή. Ποιος είναι ο αριθμός του φακέλου σας;',
      'user: Α-2291, κατατέθηκε στη Θεσσαλονίκη τον Μάρτιο.',
      'assistant: Δυστυχώς δεν μπορώ να επισπεύσω την έκδοση. Λείπει μία φωτογραφία.',
      'user: Θα τη φέρω την Τετάρτη στο αστυνομικό τμήμα.',
    ],
    summaries: [
      'Ο φάκελος Α-2291 για διαβατήριο (Θεσσαλονίκη, Μάρτιος) καθυστερεί επειδή λείπει φωτογραφία· θα προσκομιστεί την Τετάρτη στο τμήμα.',
      '- Λείπει φωτογραφία για το διαβατήριο, θα έρθει την Τετάρτη',
    ],
    translated: [
      'Passport file A-2291 (Thessaloniki) lacks a photograph; the citizen brings it on Wednesday.',
    ],
  },
  {
    lang: 'ar',
    kind: 'service',
    lines: [
      'user: مرحبًا، أحتاج إلى مساعدة بخصوص طلب شراء ثلاجة.',
      'assistant: أهلًا بك، أعتذر عن التأخير. هل يمكنك إخباري برقم الطلب؟',
      'user: الرقم 90317 والتوصيل إلى مدينة الإسكندرية.',
      'assistant: للأسف لا أستطيع تغيير موعد التسليم قبل يوم الأحد، لأن المخزن مغلق.',
      'user: حسنًا، لكن العمارة بدون مصعد وأسكن في الطابق الرابع.',
      'assistant: سأضيف عاملين لحمل الثلاجة على السلم مجانًا.',
    ],
    summaries: [
      'الطلب 90317: ثلاجة تُسلَّم في الإسكندرية يوم الأحد لأن المخزن مغلق، وسيحملها عاملان إلى الطابق الرابع دون مصعد.',
      '- تسليم الثلاجة يوم الأحد مع عاملين للطابق الرابع',
    ],
    translated: [
      'Order 90317: the fridge is delivered to Alexandria on Sunday; two workers carry it to the fourth floor.',
    ],
  },
  {
    lang: 'he',
    kind: 'talk',
    lines: [
      'user: היי, מה עשית בחופש?',
      'assistant: נסענו לכינרת עם הילדים והאוהל.',
      'user: איזה כיף! היה חם?',
      'assistant: מאוד, שחינו כל היום ואכלנו אבטיח.',
      'user: בפעם הבאה נצטרף עם הגיטרה.',
    ],
    summaries: [
      'בחופש נסעו לכינרת עם הילדים והאוהל, שחו ואכלו אבטיח; בפעם הבאה יצטרפו עם גיטרה.',
      'שיחה על החופש בכינרת ועל החום.',
    ],
    translated: [],
  },
  {
    lang: 'fa',
    kind: 'service',
    lines: [
      'user: سلام، لطفاً کمکم کنید، کارت بانکی من در دستگاه گیر کرده است.',
      'assistant: سلام، متأسفم. لطفاً شعبه و ساعت را بگویید.',
      'user: شعبهٔ خیابان حافظ در شیراز، حدود ساعت ۹ صبح.',
      'assistant: متأسفانه نمی‌توانم کارت را امروز بیرون بیاورم. کارت تازه‌ای تا پنجشنبه فرستاده می‌شود.',
      'user: خوب است، به نشانی محل کارم بفرستید.',
    ],
    summaries: [
      'کارت بانکی در دستگاه شعبهٔ خیابان حافظ شیراز گیر کرد؛ کارت تازه تا پنجشنبه به نشانی محل کار فرستاده می‌شود.',
      '- کارت تازه تا پنجشنبه به محل کار می‌رسد',
    ],
    translated: [],
  },
  {
    lang: 'hi',
    kind: 'service',
    lines: [
      'user: नमस्ते, मुझे मदद चाहिए। मेरी ट्रेन की टिकट गलत तारीख की है।',
      'assistant: क्षमा करें, यह सुनकर खेद है। कृपया पीएनआर नंबर बताइए।',
      'user: 4418827301, जयपुर से दिल्ली, दो वरिष्ठ नागरिक।',
      'assistant: मैं तारीख सीधे नहीं बदल सकता, लेकिन टिकट रद्द करके नई ले सकता हूँ। कटौती साठ रुपये होगी।',
      'user: ठीक है, शुक्रवार की सुबह वाली गाड़ी लीजिए।',
    ],
    summaries: [
      'टिकट 4418827301 (जयपुर से दिल्ली, दो वरिष्ठ नागरिक) रद्द कर शुक्रवार सुबह की गाड़ी ली जाएगी; कटौती साठ रुपये।',
      '- पुरानी टिकट रद्द, शुक्रवार सुबह की नई टिकट',
    ],
    translated: ['Ticket 4418827301 from Jaipur to Delhi is cancelled and rebooked for Friday morning.'],
  },
  {
    lang: 'th',
    kind: 'service',
    lines: [
      'user: สวัสดีค่ะ ช่วยด้วยค่ะ สั่งต้นไม้ไปแต่กระถางแตก',
      'assistant: ขออภัยค่ะ ยินดีช่วยเหลือ ขอหมายเลขคำสั่งซื้อด้วยค่ะ',
      'user: TH8812 สั่งต้นมะลิสามต้น ส่งไปเชียงใหม่',
      'assistant: ขออภัย ไม่สามารถคืนเงินได้ แต่จะส่งกระถางใหม่ให้ฟรีภายในวันพุธ',
      'user: ได้ค่ะ ขอกระถางดินเผาสีน้ำตาลนะคะ',
    ],
    summaries: [
      'คำสั่งซื้อ TH8812 ต้นมะลิสามต้นไปเชียงใหม่ กระถางแตก จะส่งกระถางดินเผาสีน้ำตาลใหม่ฟรีภายในวันพุธ',
      '- จะส่งกระถางใหม่ภายในวันพุธ',
    ],
    translated: ['Order TH8812: three jasmine plants arrived with broken pots; new ones come by Wednesday.'],
  },
  {
    lang: 'vi',
    kind: 'talk',
    lines: [
      'user: Hôm qua anh đi đâu mà không nghe máy?',
      'assistant: Anh đi câu cá với bố ở hồ, điện thoại hết pin.',
      'user: Có câu được con nào không?',
      'assistant: Ba con cá chép, tối nay nấu canh chua nhé.',
      'user: Vâng, để em mua cà chua và rau.',
    ],
    summaries: [
      'Anh đi câu cá ở hồ với bố, được ba con cá chép; tối nấu canh chua, em mua cà chua và rau.',
      'Nói chuyện về buổi câu cá và bữa tối.',
    ],
    translated: [],
  },
  {
    lang: 'id',
    kind: 'service',
    lines: [
      'user: Halo, saya butuh bantuan. Motor sewaan saya mogok di Ubud.',
      'assistant: Maaf atas masalahnya. Saya bantu, boleh minta nomor platnya?',
      'user: DK 4471 AB, sewa tiga hari lewat Pak Wayan.',
      'assistant: Maaf, saya tidak dapat mengirim montir malam ini, tetapi motor pengganti datang besok pukul tujuh.',
      'user: Baik, saya menginap di dekat pasar.',
    ],
    summaries: [
      'Motor sewaan DK 4471 AB mogok di Ubud; motor pengganti datang besok pukul tujuh, penyewa menginap dekat pasar.',
      '- Motor pengganti diantar besok pagi',
    ],
    translated: ['Rented motorbike DK 4471 AB broke down in Ubud; a replacement arrives tomorrow at seven.'],
  },
  {
    lang: 'ja',
    kind: 'service',
    lines: [
      'user: すみません、予約の変更をお願いしたいのですが。',
      'assistant: 申し訳ございません、お待たせしました。予約番号を教えていただけますか。',
      'user: 番号は5083で、京都の旅館に二泊です。',
      'assistant: 申し訳ありませんが、日程の変更は三日前までとなっております。夕食の変更でしたら可能です。',
      'user: では夕食を精進料理に変えてください。',
      'assistant: かしこまりました。ほかにお手伝いできることはございますか。',
    ],
    summaries: [
      '予約5083（京都の旅館、二泊）は日程を変えられないため、夕食を精進料理に変更した。',
      '- 夕食を精進料理へ変更',
    ],
    translated: [
      'Booking 5083 (Kyoto inn, two nights) keeps its dates; dinner was changed to vegetarian temple food.',
    ],
  },
  {
    lang: 'ja',
    kind: 'talk',
    lines: [
      'user: 昨日のドラマ見た？',
      'assistant: 見たよ。最後に犬が出てきて泣いちゃった。',
      'user: わかる。来週が最終回だね。',
      'assistant: うん、一緒に見ようよ。ポテトチップス買っておくね。',
    ],
    summaries: [
      '昨日のドラマの犬の場面で泣いたという話。来週の最終回を一緒に見る約束をした。',
      'ドラマの感想と最終回の約束。',
    ],
    translated: [],
  },
  {
    lang: 'ko',
    kind: 'service',
    lines: [
      'user: 안녕하세요, 세탁기 수리를 요청하고 싶습니다.',
      'assistant: 불편을 드려 죄송합니다. 제품 번호를 말씀해 주시겠어요?',
      'user: WM-3390이고 부산 해운대에 삽니다. 탈수할 때 소리가 너무 커요.',
      'assistant: 죄송하지만 오늘은 기사 방문이 어렵습니다. 목요일 오후 세 시에 가능합니다.',
      'user: 네, 목요일로 해 주세요. 경비실에 미리 말해 둘게요.',
    ],
    summaries: [
      '부산 해운대 고객의 세탁기 WM-3390이 탈수할 때 소리가 커서 목요일 오후 세 시에 기사가 방문한다. 경비실에는 고객이 알린다.',
      '- 목요일 오후 세 시 기사 방문 예정',
    ],
    translated: [
      'Washing machine WM-3390 in Haeundae, Busan is loud when spinning; a technician visits on Thursday at three.',
    ],
  },
  {
    lang: 'zh',
    kind: 'service',
    lines: [
      'user: 你好，我的快递丢了，能帮帮我吗？',
      'assistant: 非常抱歉给您带来不便，请提供运单号。',
      'user: 单号是SF66102，里面是一台咖啡机，寄往成都。',
      'assistant: 抱歉，我无法直接退款，但已经联系仓库，三天内会给您答复。',
      'user: 好的，请发短信通知我。',
    ],
    summaries: [
      '用户的快递SF66102（咖啡机，寄往成都）丢失，客服已联系仓库，三天内短信答复。',
      '- 已联系仓库查找咖啡机，三天内答复',
    ],
    translated: [
      'Parcel SF66102 (a coffee machine to Chengdu) is lost; the warehouse answers within three days by text message.',
    ],
  },
  {
    lang: 'zh',
    kind: 'talk',
    lines: [
      'user: 周末去爬山吗？',
      'assistant: 好啊，不过我膝盖有点疼，走慢一点。',
      'user: 没问题，我带些橘子和热茶。',
      'assistant: 那我带相机，秋天的红叶一定很美。',
    ],
    summaries: ['两人约好周末爬山看红叶，带橘子、热茶和相机，因膝盖疼要走慢些。', '约定周末爬山。'],
    translated: [],
  },
  {
    lang: 'en',
    kind: 'service',
    lines: [
      'user: Hello, I need help with a request. Can you change the address of my order?',
      "assistant: I'm sorry for the inconvenience. I can help you with that. Please provide your order number and personal information.",
      "user: It's #W2378156, and my name is Yusuf Rossi. I also want to know whether the mechanical keyboard can be exchanged.",
      'assistant: I apologize, but I cannot change the address because the order has been delivered. I can assist you with the exchange. The conversation may be recorded.',
      'user: Fine, exchange it for one with clicky switches, and send the difference to my gift card.',
      "assistant: I'm sorry, but I can't help with that request: the payment method has to be the original one. Please let me know if you have any other questions.",
      'user: Then use the credit card.',
    ],
    summaries: [
      'Yusuf Rossi wanted a new address for order #W2378156 (not possible, delivered) and exchanges the mechanical keyboard for one with clicky switches; the difference goes to the credit card.',
      '- Exchange of the keyboard for clicky switches, difference to the credit card',
    ],
    translated: ['用户Yusuf Rossi要把订单#W2378156的机械键盘换成clicky轴，差额退到信用卡。'],
  },
  {
    lang: 'en',
    kind: 'talk',
    lines: [
      'user: hey, how are you doing?',
      "assistant: pretty good, thanks! I went swimming with the kids yesterday. what's up with you?",
      'user: same old. I finally finished the puzzle my sister gave me.',
      'assistant: nice! how many pieces?',
      'user: a thousand. the sky took forever.',
      'assistant: lol, sky is the worst.',
    ],
    summaries: [
      'They catch up: one went swimming with the kids, the other finished a thousand-piece puzzle from a sister; the sky was hardest.',
      '- Small talk about swimming with kids and a finished puzzle',
    ],
    translated: [],
  },
  {
    lang: 'en',
    kind: 'talk',
    lines: [
      'user: ok thanks, that is all for now',
      "assistant: You're welcome! Have a nice day.",
      'user: you too, bye',
    ],
    summaries: [
      'The user thanked the assistant and said goodbye.',
      'User says thanks and bye; nothing else is open.',
    ],
    translated: [],
  },
  {
    lang: 'uk',
    kind: 'work',
    lines: [
      'user: Тести в src/parser.ts падають після оновлення, подивись, будь ласка.',
      'assistant: Дивлюся. Помилка: "Unexpected token" у рядку 88, бо лексер більше не пропускає коментарі.',
      'user: Виправ лексер, але не чіпай граматику.',
      'assistant: Виправив src/lexer.ts: коментарі знову пропускаються, 41 тест проходить.',
    ],
    summaries: [
      'Тести в src/parser.ts падали, бо лексер не пропускав коментарі; виправлено src/lexer.ts, граматику не чіпали, 41 тест проходить.',
      '- Лексер виправлено, тести проходять',
    ],
    translated: [
      'Tests in src/parser.ts failed because the lexer kept comments; src/lexer.ts is fixed, 41 tests pass, the grammar stays untouched.',
    ],
  },
  {
    lang: 'en',
    kind: 'work',
    lines: [
      'user: can you audit this codebase and provide me with detailed suggestions for improvement?',
      'assistant: I have reviewed `main.py` and have several suggestions. First, the use of `exec()` is a significant security risk: exec(code) allows arbitrary code. I will replace it.',
      'tool: "RestrictedPython" is a Python library that defines a subset of the Python language for untrusted code.',
      'assistant: `RestrictedPython` appears to be a solid choice. Trying `pip3`, for `pip` is missing.',
      'tool: error: externally-managed-environment',
      'assistant: Okay, I will create a virtual environment named `venv` in this project and install `RestrictedPython` there.',
      'tool: Successfully installed RestrictedPython-8.0',
    ],
    summaries: [
      '- Audit of main.py: exec() is a security risk, to be replaced with RestrictedPython\n- RestrictedPython was installed in a virtual environment, because pip3 refused (externally-managed-environment)',
    ],
    translated: [
      'Auditoría de main.py: exec() reemplazado por RestrictedPython, instalado en un venv.',
      'main.py की जाँच हुई; exec() की जगह RestrictedPython लगाया गया, venv में इंस्टॉल किया गया।',
    ],
  },
  {
    lang: 'en',
    kind: 'talk',
    lines: [
      'user: Were Scott Derrickson and Ed Wood of the same nationality?',
      'assistant: Yes, both were American.',
    ],
    summaries: [
      'The user asked whether Scott Derrickson and Ed Wood had the same nationality: yes, American.',
    ],
    translated: ['¿Scott Derrickson y Ed Wood tienen la misma nacionalidad? Respuesta: sí.'],
  },
  {
    lang: 'de',
    kind: 'talk',
    lines: [
      'user: Kannst du den Zug nach Wien auf Freitag verschieben?',
      'assistant: Ja, ich habe ihn auf Freitag 8:15 umgebucht.',
      'user: Danke, perfekt!',
    ],
    summaries: ['Der Zug nach Wien wurde auf Freitag 8:15 umgebucht.'],
    translated: ['Train to Vienna moved to Friday 8:15. Done.'],
  },
  {
    lang: 'fi',
    kind: 'talk',
    lines: [
      'user: Siirrä kokous torstaille',
      'assistant: Kokous on nyt torstaina kello 14.',
      'user: Kiitos, ilmoita myös Liisalle',
    ],
    summaries: ['Kokous siirretty torstaille klo 14, Liisalle ilmoitettava.'],
    translated: ['Meeting moved to Thursday 14:00; Liisa to be told.'],
  },
];
